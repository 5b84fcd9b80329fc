//! One router out of the faces that this process shows.

use std::sync::Arc;

use axum::Router;
use metrics_exporter_prometheus::PrometheusHandle;

use super::api::{ApiState, api_router};
use super::health::{HealthState, health_router};
use super::ui::{UiParts, UiState, ui_router};
use crate::cli::serve::Part;
use crate::node::Node;

/// The API, the webhooks and the pages of this process; health and metrics beside them unless they have
/// a listener of their own.
pub fn router(node: &Node, metrics: PrometheusHandle, with_health: bool) -> Router {
    let mut router = Router::new();
    if node.runs(Part::Api) {
        router = router.merge(api_router(ApiState {
            store: Arc::clone(&node.store),
            admission: Arc::clone(&node.admission),
            registry: Arc::clone(&node.registry),
            wakeups: node.wakeups.clone(),
            clock: Arc::clone(&node.env.clock),
            entropy: Arc::clone(&node.env.entropy),
            keys: Arc::clone(&node.env.keys),
            public_url: node.config.server.public_url.trim_end_matches('/').into(),
        }));
    }
    if node.runs(Part::Ui) {
        router = router.merge(ui_router(UiState::new(UiParts {
            store: Arc::clone(&node.store),
            config: Arc::clone(&node.config),
            keys: Arc::clone(&node.env.keys),
            clock: Arc::clone(&node.env.clock),
            entropy: Arc::clone(&node.env.entropy),
            wakeups: node.wakeups.clone(),
            providers: Arc::clone(&node.registry),
            sealer: Arc::clone(&node.sealer),
            transport: Arc::clone(&node.transport),
            shutdown: node.stop.clone(),
        })));
    }
    if with_health {
        router = router.merge(health_only(node, metrics));
    }
    router
}

/// `/healthz`, `/readyz` and `/metrics` alone.
pub fn health_only(node: &Node, metrics: PrometheusHandle) -> Router {
    let state = HealthState::new(
        Arc::clone(&node.store),
        Arc::clone(&node.env.clock),
        Arc::clone(&node.health),
        Some(metrics),
    )
    .watching(Arc::clone(&node.config));
    let is_followed = node.store.describe().0 == "postgres";
    health_router(if is_followed { state.following(node.clock.clone()) } else { state })
}
