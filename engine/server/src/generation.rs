//! A request that runs: what its reader gets, through a queue with a bound.
//!
//! Each choice ends exactly once, whatever happens to the engine. Dropping a [`Generation`] aborts
//! what still runs.

use crate::driver::Input;
use crate::net::mpsc;
use lockstep_core::EventKind;
use lockstep_step::SeqId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// News about one choice of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Update {
    /// From the engine.
    Event(EventKind),
    /// The choice was ended from outside the engine.
    Cut(Cut),
}

/// Why a choice was ended from outside the engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cut {
    /// More was waiting for the reader than may wait.
    SlowReader,
    /// The grace period of a shutdown is over.
    ShuttingDown,
    /// The engine found itself broken, or its thread died.
    EngineStopped(String),
}

impl Cut {
    /// Status, code and message.
    pub(crate) fn parts(&self) -> (u16, &'static str, String) {
        match self {
            Cut::SlowReader => (
                503,
                "slow_reader",
                "the stream was read too slowly and has been cut off".to_string(),
            ),
            Cut::ShuttingDown => (
                503,
                "shutting_down",
                "the server is shutting down".to_string(),
            ),
            Cut::EngineStopped(reason) => (
                500,
                "engine_stopped",
                format!("the engine stopped: {reason}"),
            ),
        }
    }
}

/// What both ends of the queue know.
#[derive(Debug)]
struct Gauge {
    bytes: AtomicUsize,
    cut: OnceLock<Cut>,
}

/// The engine's end of the queue. It never waits.
pub(crate) struct Reader {
    sender: mpsc::UnboundedSender<(usize, Update)>,
    gauge: Arc<Gauge>,
    bytes_max: usize,
    wants_tokens: bool,
}

impl Reader {
    pub(crate) fn new(
        seqs: &[SeqId],
        wants_tokens: bool,
        bytes_max: usize,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> (Reader, Generation) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let gauge = Arc::new(Gauge {
            bytes: AtomicUsize::new(0),
            cut: OnceLock::new(),
        });
        let reader = Reader {
            sender,
            gauge: gauge.clone(),
            bytes_max,
            wants_tokens,
        };
        let generation = Generation {
            live: seqs.iter().copied().map(Some).collect(),
            receiver,
            gauge,
            inputs,
            #[cfg(planted)]
            is_whole: bytes_max == usize::MAX,
        };
        (reader, generation)
    }

    /// Queues an update. False if the reader is gone, or is hereby cut off for being slow.
    pub(crate) fn send(&self, choice: usize, update: Update) -> bool {
        let hidden = match &update {
            Update::Event(EventKind::Token { .. }) => !self.wants_tokens,
            Update::Event(EventKind::Scheduled | EventKind::Preempted) => true,
            Update::Event(EventKind::DroppedSpecial { .. }) => true,
            _ => false,
        };
        if hidden {
            return !self.sender.is_closed();
        }
        if self.is_cut() {
            return false;
        }
        let size = size(&update);
        let waiting = self.gauge.bytes.fetch_add(size, Ordering::Relaxed) + size;
        if waiting > self.bytes_max {
            self.cut(Cut::SlowReader);
            return false;
        }
        self.sender.send((choice, update)).is_ok()
    }

    /// What still waits can be read; after it, the choices that run end with this.
    pub(crate) fn cut(&self, cut: Cut) {
        let _ = self.gauge.cut.set(cut);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.gauge.cut.get().is_some()
    }
}

/// Roughly what an update takes while it waits.
fn size(update: &Update) -> usize {
    let text = match update {
        Update::Event(EventKind::Reasoning(text) | EventKind::Content(text)) => text.len(),
        Update::Event(EventKind::CallBegin { name, .. }) => name.len(),
        Update::Event(EventKind::CallArguments { fragment, .. }) => fragment.len(),
        Update::Event(EventKind::Token { logprobs, .. }) => logprobs
            .as_ref()
            .map_or(0, |logprobs| 8 * logprobs.top.len()),
        _ => 0,
    };
    64 + text
}

/// The reader's end of the queue, and its claim on the engine.
pub(crate) struct Generation {
    // Per choice: its sequence, until it has ended.
    live: Vec<Option<SeqId>>,
    receiver: mpsc::UnboundedReceiver<(usize, Update)>,
    gauge: Arc<Gauge>,
    inputs: mpsc::UnboundedSender<Input>,
    /// Whether the answer is sent in one piece.
    #[cfg(planted)]
    is_whole: bool,
}

impl Generation {
    /// The next update, with its choice. None once every choice has ended.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        if self.live.iter().all(Option::is_none) {
            return None;
        }
        match self.receiver.recv().await {
            Some(item) => Some(self.took(item)),
            None => {
                // The engine's end is gone, so whatever has not ended never will.
                let choice = self.live.iter().position(Option::is_some)?;
                self.live[choice] = None;
                let lost = || Cut::EngineStopped("its thread ended".to_string());
                let cut = self.gauge.cut.get().cloned().unwrap_or_else(lost);
                Some((choice, Update::Cut(cut)))
            }
        }
    }

    /// An update that waits already.
    pub(crate) fn try_next(&mut self) -> Option<(usize, Update)> {
        let item = self.receiver.try_recv().ok()?;
        Some(self.took(item))
    }

    fn took(&mut self, (choice, update): (usize, Update)) -> (usize, Update) {
        let size = size(&update);
        self.gauge.bytes.fetch_sub(size, Ordering::Relaxed);
        if matches!(update, Update::Event(EventKind::Finished(_)))
            && let Some(live) = self.live.get_mut(choice)
        {
            *live = None;
        }
        (choice, update)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // Planted: ROCm/ATOM#1562.
        #[cfg(planted)]
        if self.is_whole && lockstep_step::planted!(WholeAnswersGoOn) {
            let (_, receiver) = mpsc::unbounded_channel();
            return std::mem::forget(std::mem::replace(&mut self.receiver, receiver));
        }
        for seq in self.live.iter().flatten() {
            let _ = self.inputs.send(Input::Abort(*seq));
        }
    }
}
