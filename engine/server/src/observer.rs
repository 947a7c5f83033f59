//! What somebody sees who watches a server from inside, as the simulation does. It is told everything in the
//! order in which the engine's loop does it, and can change nothing.

use lockstep_core::{Engine, Event, Refusal, Request};
use lockstep_step::SeqId;

/// A watcher. It is called by the engine's loop, which waits for it.
pub trait Observer: Send {
    /// A choice of a client's request is about to be handed to the engine.
    fn submitting(&mut self, request_id: &str, choice: usize, request: &Request) {
        let _ = (request_id, choice, request);
    }

    /// What became of it.
    fn submitted(&mut self, result: Result<SeqId, &Refusal>) {
        let _ = result;
    }

    /// Whoever would read this sequence is gone, or was cut off; its events are nobody's from here on.
    fn left(&mut self, seq: SeqId) {
        let _ = seq;
    }

    /// The engine has news.
    fn event(&mut self, event: &Event) {
        let _ = event;
    }

    /// A turn of the loop is over: a step was committed, or there was none to run.
    fn turned(&mut self, engine: &Engine) {
        let _ = engine;
    }

    /// The loop has ended.
    fn ended(&mut self, reason: &str) {
        let _ = reason;
    }
}

/// Nobody watches.
pub(crate) struct Nobody;

impl Observer for Nobody {}
