//! The watch's chores: folding counts, looking at the conditions, telling people. Each is a duty.

use std::collections::BTreeMap;
use std::sync::Arc;

use app::model::Channel;

use super::guardrails::{self, RECENT};
use super::life::{self, Patience};
use super::objective;
use crate::config::Config;
use crate::store::{Env, Error, Hold, Store, Width};

/// What a look needs.
#[derive(Debug, Clone)]
pub struct Watch {
    pub store: Arc<dyn Store>,
    pub env: Env,
    pub config: Arc<Config>,
    /// Names of those who are told.
    pub targets: Vec<String>,
}

impl Watch {
    /// Looks at every condition once and writes what became of the alerts.
    ///
    /// # Errors
    /// The store's; [`Error::DutyLost`] where another process looks by now.
    pub async fn look(&self, hold: Hold) -> Result<(), Error> {
        let now = self.env.clock.now();
        let slo = &self.config.slo;
        let recent = Width::Minute.floor(now.plus(-RECENT));
        let figures = self.store.figures(recent).await?;
        let counted = objective::read(&*self.store, slo, now).await?;
        let burns: BTreeMap<Channel, Vec<app::model::Burn>> = Channel::ALL
            .iter()
            .map(|channel| (*channel, objective::burns(&counted, *channel, slo, now)))
            .collect();
        let seen = guardrails::look(&figures, &burns, &self.config, now);
        let open = self.store.open_alerts().await?;
        let patience = Patience {
            hold_for: self.config.alerts.hold_for,
            clear_for: self.config.alerts.clear_for,
        };
        let entropy = &self.env.entropy;
        let changes = life::step(&open, &seen, patience, now, || entropy.uuid(now));
        for change in changes.iter().filter(|change| change.tell.is_some()) {
            tracing::warn!(
                alert.rule = %change.alert.rule, alert.subject = %change.alert.subject,
                alert.count = change.alert.count, told = change.tell, "an alert changed"
            );
        }
        self.store.change_alerts(hold, &changes, &self.targets).await
    }
}
