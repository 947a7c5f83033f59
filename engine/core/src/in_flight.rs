//! What a step that runs still holds: its drafts, the blocks and rows it names, and how far it computes.
//! With one step at a time each is planned when the last is committed; overlapped, the next is planned
//! while one runs. It is the same loop.

use crate::{RequestError, draft::Draft};
use alloc::{collections::VecDeque, vec::Vec};
use lockstep_step::{BLOCK_LEN, RowId, SeqId, StepId, planted};

/// Steps that may run at once: one that is computed, and the next.
const STEPS_MAX: usize = 2;

/// One sequence's part of a running step.
#[derive(Clone, Debug)]
pub(crate) struct RunningSeq {
    pub(crate) seq: SeqId,
    /// Position of the first query token.
    pub(crate) start: usize,
    /// Query tokens that are committed; at least one.
    pub(crate) num_committed: usize,
    /// Query tokens after them that are not.
    pub(crate) drafts: Vec<Draft>,
    pub(crate) num_scored: usize,
    /// Blocks that the plan names. What holds them is said in `blocks.rs`; here tests see that it does.
    #[cfg(test)]
    pub(crate) blocks: Vec<lockstep_step::BlockId>,
    /// The row that the plan reads; leased.
    pub(crate) read: Option<RowId>,
    /// Rows written at lengths that are worth keeping, with the index of the query token before; owned by the
    /// step.
    pub(crate) kept: Vec<(usize, RowId)>,
    /// `writes[i]` receives the state after the committed tokens and `i` drafts; owned by the step until a
    /// commit gives one of them to the sequence.
    pub(crate) writes: Vec<RowId>,
    pub(crate) masks: MaskState,
}

impl RunningSeq {
    /// The rows that the step writes.
    pub(crate) fn written(&self) -> impl Iterator<Item = RowId> + '_ {
        let kept = self.kept.iter().map(|&(_, row)| row);
        kept.chain(self.writes.iter().copied())
    }

    /// The state after `len` tokens, if the step left it and a commit of so many drafts may use it.
    pub(crate) fn state(&self, num_accepted: usize, len: usize) -> Option<RowId> {
        let start = self.start;
        // Planted: sgl-project/sglang#29973.
        let computed = start + self.num_committed + num_accepted;
        if planted!(SnapshotSlotOverwrittenByActive)
            && len == computed - computed % BLOCK_LEN as usize
        {
            return self.writes.get(num_accepted).copied();
        }
        let kept = self.kept.iter().map(|&(idx, row)| (start + idx + 1, row));
        let writes = self.writes.iter().take(num_accepted + 1).copied();
        let mut states = kept.chain((start + self.num_committed..).zip(writes));
        states.find(|state| state.0 == len).map(|state| state.1)
    }
}

/// How far the masks of a part are. A draw counts only where its mask is known.
#[derive(Clone, Debug)]
pub(crate) enum MaskState {
    /// No mask applies.
    Free,
    /// The rows are yet to be filled.
    Pending,
    /// Filled for the first so many scored positions, at least one.
    Filled { num_rows: usize },
    /// The commit ends the sequence with this error.
    Failed(RequestError),
}

/// A running step.
#[derive(Clone, Debug)]
pub(crate) struct RunningStep {
    pub(crate) step: StepId,
    /// In the order of the plan.
    pub(crate) seqs: Vec<RunningSeq>,
}

impl RunningStep {
    fn position(&self, seq: SeqId) -> Option<usize> {
        self.seqs.binary_search_by_key(&seq, |part| part.seq).ok()
    }

    pub(crate) fn get(&self, seq: SeqId) -> Option<&RunningSeq> {
        self.position(seq).map(|at| &self.seqs[at])
    }
}

/// The running steps, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight {
    steps: VecDeque<RunningStep>,
}

impl InFlight {
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn push(&mut self, step: RunningStep) {
        let len = self.steps.len();
        assert!(len < STEPS_MAX, "{len} steps are in flight");
        self.steps.push_back(step);
    }

    pub(crate) fn oldest(&self) -> Option<&RunningStep> {
        self.steps.front()
    }

    /// Takes the oldest step out, if it is this one: steps are committed in the order they were planned.
    pub(crate) fn pop(&mut self, step: StepId) -> Option<RunningStep> {
        if self.steps.front()?.step != step {
            return None;
        }
        self.steps.pop_front()
    }

    /// A sequence's part of a step.
    pub(crate) fn get_mut(&mut self, step: StepId, seq: SeqId) -> Option<&mut RunningSeq> {
        let running = self.steps.iter_mut().find(|running| running.step == step)?;
        let at = running.position(seq)?;
        Some(&mut running.seqs[at])
    }

    /// The last part of a sequence, and its step.
    pub(crate) fn last(&self, seq: SeqId) -> Option<(StepId, &RunningSeq)> {
        let steps = self.steps.iter().rev();
        let mut found = steps.filter_map(|running| Some((running.step, running.get(seq)?)));
        found.next()
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &RunningSeq> {
        self.steps.iter().flat_map(|running| running.seqs.iter())
    }
}
