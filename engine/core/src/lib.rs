//! The engine's core: everything that is true about sequences, as a pure and synchronous state machine.
//! Requests go in, plans come out; outputs go in, events come out.
//!
//! It must never read a clock, open a file, spawn a thread or know an API; `no_std` keeps most of these out
//! by construction. Read `engine.rs` first: its five verbs are the table of contents.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod blocks;
mod config;
mod constraint;
mod draft;
mod engine;
mod event;
mod fault;
mod in_flight;
mod leases;
mod live;
mod mask_job;
mod memory;
mod output;
mod prefix;
mod proposals;
mod request;
mod rows;
mod run;
mod scheduler;
mod sequence;
mod standing;
mod time;
mod verify;
mod vocabulary;

pub use config::{ConfigError, EngineConfig, RejectedDrafts, Stats, Totals};
pub use draft::{
    DRAFT_DEPTH_MAX, DraftSource, DraftTotals, Drafter, ModelDrafters, Speculation,
    SpeculationError,
};
pub use engine::Engine;
pub use event::{Event, EventKind, Finish, Finished, RequestError, Usage};
pub use fault::EngineFault;
pub use mask_job::{MaskDone, MaskJob, MaskJobId};
pub use request::{QueueKind, ReasoningBudget, Refusal, Request};
pub use run::{Host, Pipeline, Still, run_step, run_to_end};
pub use time::Time;
pub use vocabulary::Vocabulary;

#[cfg(test)]
mod tests;
