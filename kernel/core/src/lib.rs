//! What the hot paths of rmq-ha do to many messages at once, from bytes to bytes.
//!
//! - [`cut`] takes the ordinary sends from the start of what a peer sent.
//! - [`layout`] makes records of them, [`walk`] reads records of a log: both give a [`run::Run`].
//! - [`units`], [`index`], [`answers`] and [`run::Run::counts`] make of a run what queues, index,
//!   senders and statistics get.
//!
//! Whatever is unusual ends a run, or gives `None`: then Python does it the general way. The bytes
//! come from strangers, so each access is checked, and no input makes a function panic.

#![forbid(unsafe_code)]

pub mod answers;
pub mod bytes;
pub mod cut;
pub mod frames;
pub mod hash;
pub mod index;
pub mod json;
pub mod layout;
pub mod properties;
pub mod record;
pub mod rules;
pub mod run;
pub mod send;
pub mod topics;
pub mod units;
pub mod walk;
