//! The provider `demo`: the generic protocol against the simulator in the same process.
//!
//! It goes over a real socket, so that everything between a call and its verdict is the code that talks to
//! real providers. Nothing ever leaves the machine.
//!
//! Without `listen` the socket is a free loopback port of this process alone, requests must be signed with
//! a key that only this process knows, and there is no control API. With `listen` the simulator is open at
//! that address, control API included and without a signature. Several processes with the same `listen`
//! share one simulator: the first serves, the others wait for the address to come free.
//!
//! What it has accepted outlives the process: see [`crate::simulator::Journal`]. Processes on one database
//! that share neither the data folder nor `listen` do not see each other's messages: give them one of the two.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;

use super::http::HttpProvider;
use super::transport::Transport;
use super::{BuildError, Capability, Deadline, Secret};
use crate::clock::{Clock, micros};
use crate::config::{Config, Kind, ProviderConfig};
use crate::entropy::Entropy;
use crate::simulator::{self, CallbackTarget, Journal, Settings, Simulator};

/// The name that every configuration has, and the kind.
pub const NAME: &str = "demo";

/// How often a process that shares the simulator of another one looks whether the address is free.
const TAKE_OVER: Duration = Duration::from_secs(1);

/// The simulator of this process, and how to reach it.
#[derive(Debug)]
pub struct Running {
    simulator: Arc<Simulator>,
    address: SocketAddr,
    secret: Secret,
}

impl Running {
    /// The simulator, for scripts and counts in the same process.
    #[must_use]
    pub const fn simulator(&self) -> &Arc<Simulator> {
        &self.simulator
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The adapter that talks to it. Without a configuration: it can be read, honours no key, has no
    /// callbacks.
    #[must_use]
    pub fn provider(
        &self,
        config: Option<&ProviderConfig>,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> HttpProvider {
        let kind = Kind::find(NAME).expect("the table of kinds has its first row");
        let capability = match config {
            Some(_) => Capability::of(kind, config),
            None => Capability { callbacks: None, ..Capability::of(kind, None) },
        };
        let base_url = format!("http://{}/{NAME}", self.address);
        let webhook_secret = config.and_then(|config| config.webhook_secret.clone());
        HttpProvider::of(
            base_url,
            self.secret.clone(),
            webhook_secret,
            capability,
            clock,
            transport,
        )
    }
}

/// Starts the simulator of this process.
///
/// # Errors
/// When `listen` is no address or belongs to another program, or the journal cannot be kept.
pub async fn start(
    config: &Config,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    transport: Arc<dyn Transport>,
) -> Result<Running, BuildError> {
    let own = config.providers.get(NAME);
    let listen = own.and_then(|own| own.listen.as_deref());
    let address: SocketAddr =
        listen.unwrap_or("127.0.0.1:0").parse().map_err(|_| BuildError::Invalid {
            name: NAME.to_owned(),
            key: "listen",
            why: "must be an address and a port, as 127.0.0.1:4010",
        })?;
    let journal = Journal::open(&config.server.data_dir, clock.now())
        .map_err(|source| BuildError::Journal { source })?;
    let secret = Secret::new(entropy.hex(32));
    let callbacks = own.and_then(|own| own.webhook_secret.clone()).map(|key| CallbackTarget {
        url: format!("{}/webhooks/{NAME}", config.server.public_url.trim_end_matches('/')),
        key,
    });
    let settings = Settings {
        // Processes that share a simulator do not share this key.
        secret: listen.is_none().then(|| secret.clone()),
        callbacks,
        has_control: listen.is_some(),
        ..Settings::default()
    };
    let simulator = Simulator::new(
        settings,
        Some(journal),
        Arc::clone(&clock),
        entropy,
        Arc::clone(&transport),
    );
    let bound = TcpListener::bind(address).await;
    let address = match bound {
        Ok(listener) => {
            let address = listener.local_addr().map_err(|source| BuildError::Listen { source })?;
            tokio::spawn(simulator::serve(listener, Arc::clone(&simulator)));
            address
        }
        Err(source) if source.kind() == std::io::ErrorKind::AddrInUse => {
            if !is_simulator(address, &*clock, &*transport).await {
                return Err(BuildError::Listen { source });
            }
            tokio::spawn(take_over(address, Arc::clone(&simulator), clock));
            address
        }
        Err(source) => return Err(BuildError::Listen { source }),
    };
    Ok(Running { simulator, address, secret })
}

/// Whether the one who holds this address is a simulator of ours.
async fn is_simulator(address: SocketAddr, clock: &dyn Clock, transport: &dyn Transport) -> bool {
    let Ok(request) = http::Request::get(format!("http://{address}/_control")).body(Bytes::new())
    else {
        return false;
    };
    let deadline = Deadline { boot: clock.boot() + micros(Duration::from_secs(2)) };
    transport
        .exchange(request, deadline)
        .await
        .is_ok_and(|response| response.headers().contains_key(simulator::MARK))
}

/// Serves as soon as the process that does so now is gone.
async fn take_over(address: SocketAddr, simulator: Arc<Simulator>, clock: Arc<dyn Clock>) {
    let closing = simulator.closing().clone();
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = clock.sleep(TAKE_OVER) => {}
        }
        if let Ok(listener) = TcpListener::bind(address).await {
            return simulator::serve(listener, simulator).await;
        }
    }
}
