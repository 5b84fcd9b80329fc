//! Admission: reads an event, judges what needs no database, and commits it in a group with others.
//!
//! Durable before it is answered, and answered the same however often it is asked. Nothing here calls a
//! provider or resolves an address, so neither the answer nor its time says whether anybody is known.
//! No HTTP in here: the command line admits through the same door.

pub mod strict;
pub mod validate;

mod service;

pub(crate) use service::chain;
pub use service::{AdmissionAnswer, AdmissionService, COUNTER, OUTCOMES};
pub use strict::EVENT_BYTES_MAX;
pub use validate::{Defaults, FieldError, ParsedEvent, parse_event};
