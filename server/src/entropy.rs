//! The only source of randomness.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use app::model::Stamp;
use sha2::{Digest, Sha256};

/// Randomness as a value that is passed in.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Fills the buffer with unpredictable bytes.
    fn fill(&self, buffer: &mut [u8]);

    /// A UUIDv7 for this instant, as text.
    fn uuid(&self, now: Stamp) -> String {
        let mut random = [0_u8; 10];
        self.fill(&mut random);
        let millis = u64::try_from(now.micros() / 1_000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string()
    }

    /// A number from 0 to `below` - 1; 0 when `below` is 0. The bias is below 2^-32 for small ranges.
    fn below(&self, below: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.fill(&mut bytes);
        if below == 0 { 0 } else { u64::from_le_bytes(bytes) % below }
    }

    /// So many random bytes as lowercase hex.
    fn hex(&self, bytes: usize) -> String {
        let mut buffer = vec![0_u8; bytes];
        self.fill(&mut buffer);
        crate::keys::hex(&buffer)
    }
}

/// The operating system's generator.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads randomness")]
    fn fill(&self, buffer: &mut [u8]) {
        getrandom::fill(buffer).expect("the operating system has a random number generator");
    }
}

/// The same bytes for the same seed, for tests and simulations. Never for keys.
#[derive(Debug)]
pub struct SeededEntropy {
    seed: u64,
    counter: Mutex<u64>,
}

impl SeededEntropy {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, counter: Mutex::new(0) }
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in buffer.chunks_mut(32) {
            let mut hash = Sha256::new();
            hash.update(self.seed.to_le_bytes());
            hash.update(counter.to_le_bytes());
            *counter += 1;
            let block = hash.finalize();
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }
}
