//! The backend: plans in, draws out. A step is uploaded as a few arrays, queued, and looked at only when its draws are
//! collected; the next may be queued before that. It must never keep a sequence's tokens or guess its length.

mod collect;
mod load;
mod slots;

pub use load::CudaOptions;

use crate::device::Device;
use crate::draft::Drafters;
use crate::draw::{DrawRequest, Drawn};
use crate::memory::{Memory, Ptr, Region};
use crate::model::{Kept, Logits, Model};
use crate::ops::embed::ResolveTokens;
use crate::queue::{Event, Graph, Queue};
use crate::step::{Arrays, Buffers, write_arrays};
use crate::{CudaError, DeviceError};
use lockstep_sampling::{DrawnTokens, check_width, seq_error};
use lockstep_step::{
    Backend, BackendError, BackendLimits, MaskSet, ModelDrafter, NO_ID, Pos, Proposal,
    ProposalPlan, QueryToken, SeqError, StepLayout, StepOutput, StepPlan, TokenId, admit_proposals,
    check_plan,
};
use slots::{Recent, Slots};
use std::collections::BTreeMap;

/// A model on a device.
pub struct CudaBackend {
    limits: BackendLimits,
    model: Model,
    kept: Kept,
    drafters: Drafters,
    buffers: Buffers,
    // Arrays of the step that runs, on the device.
    arrays: Ptr<u32>,
    logits: Ptr<f32>,
    // Positions whose logits are held at once.
    logits_rows: usize,
    // Of a fixed shape for few rows, of the step's own for many.
    fixed: StepLayout,
    exact: StepLayout,
    // Rows up to which steps are recorded and replayed; 0 where none are.
    graph_rows: usize,
    graphs: BTreeMap<GraphKey, Graph>,
    slots: Slots,
    asked: [(DrawRequest, Event); 2],
    num_asked: usize,
    drawn: DrawnTokens,
    recent: Recent,
    queue: Queue,
    memory: Memory,
}

/// What a recorded step depends on: rows, and blocks of the longest sequence.
type GraphKey = (usize, usize);

/// A step that is queued up to its logits.
pub struct CudaForward {
    plan: StepPlan,
    arrays: Arrays,
}

/// A step that is queued up to its draws.
pub struct CudaSampled {
    plan: StepPlan,
    // Rows that are no padding.
    num_rows: usize,
    slot: usize,
    // Errors that were seen before anything was launched, per scored position.
    errors: Vec<Option<SeqError>>,
}

impl CudaBackend {
    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// What is held on the device, in bytes by region.
    pub fn memory_table(&self) -> Vec<(Region, usize)> {
        self.memory.table()
    }

    /// Graphs that were recorded so far.
    pub fn num_graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Uploads the arrays of a step.
    fn upload(&mut self, plan: &StepPlan) -> Result<Arrays, CudaError> {
        let (mut tokens, mut refs) = (Vec::new(), Vec::new());
        for seq in &plan.seqs {
            for token in &seq.query {
                let (token, draw) = match *token {
                    QueryToken::Known(token) => (token, NO_ID),
                    QueryToken::Drawn { step, scored_idx } => {
                        // What was never drawn is found out when the step is collected.
                        let found = self.recent.find(seq.seq, step, scored_idx);
                        (TokenId(0), found.unwrap_or(NO_ID))
                    }
                };
                tokens.push(token);
                refs.push(draw);
            }
        }
        let layout = if tokens.len() <= self.graph_rows {
            &mut self.fixed
        } else {
            &mut self.exact
        };
        layout.lay_out(&plan.seqs, &tokens);
        let staging = self.slots.staging()?;
        let len = write_arrays(layout, &refs, staging.values_mut());
        self.queue
            .upload("arrays of a step", staging, 0..len, self.arrays)?;
        self.slots.staged(&self.queue)?;
        Ok(Arrays::of(layout, self.arrays))
    }

    /// Queues everything up to the first rows of logits.
    fn queue_forward(&self, arrays: &Arrays) -> Result<(), DeviceError> {
        let (queue, buffers) = (&self.queue, &self.buffers);
        queue.fill("faults", buffers.faults, 0xff, arrays.num_rows)?;
        ResolveTokens {
            tokens: buffers.tokens,
            known: arrays.known,
            refs: arrays.refs,
            drawn: self.slots.drawn().tokens,
            num_rows: arrays.num_rows as i32,
        }
        .launch(queue)?;
        let step = self.model.step(queue, arrays, buffers);
        self.model.forward(&step, &self.kept)?;
        let num = arrays.num_scored.min(self.logits_rows);
        self.queue_head(arrays, (0, num))?;
        self.drafters.mirror(&self.model, &step)
    }

    /// Queues the logits of some scored positions, and their digests.
    fn queue_head(&self, arrays: &Arrays, (first, num): (usize, usize)) -> Result<(), DeviceError> {
        let step = self.model.step(&self.queue, arrays, &self.buffers);
        let logits = Logits {
            values: self.logits,
            digests: self.slots.digests().at(first),
        };
        self.model.head(&step, (first, num), logits)
    }

    /// Queues a step of a fixed shape as a graph, which is recorded the first time.
    fn replay(&mut self, arrays: &Arrays) -> Result<(), DeviceError> {
        let key = (arrays.num_rows, arrays.blocks_max);
        if !self.graphs.contains_key(&key) {
            let record = || self.queue_forward(arrays);
            let graph = self.queue.capture("recording a step", record)?;
            self.graphs.insert(key, graph);
        }
        self.queue.replay("replaying a step", &self.graphs[&key])
    }

    fn try_forward(&mut self, plan: &StepPlan) -> Result<Arrays, CudaError> {
        self.queue.device().bind()?;
        let arrays = self.upload(plan)?;
        // One that is waited for operation by operation can't be recorded.
        let recorded = plan.num_query_tokens() <= self.graph_rows && !self.queue.is_blocking();
        if recorded {
            self.replay(&arrays)?;
        } else {
            self.queue_forward(&arrays)?;
        }
        Ok(arrays)
    }

    fn try_draw(
        &mut self,
        forward: CudaForward,
        masks: &MaskSet,
    ) -> Result<CudaSampled, CudaError> {
        self.queue.device().bind()?;
        let CudaForward { plan, arrays } = forward;
        let positions = positions(&plan);
        let slot = self.slots.next();
        let to = self.slots.drawn_of(slot);
        let mut errors = Vec::with_capacity(positions.len());
        let mut first = 0;
        while first < positions.len() {
            let num = (positions.len() - first).min(self.logits_rows);
            if first > 0 {
                self.queue_head(&arrays, (first, num))?;
            }
            let chunk = &positions[first..first + num];
            self.draw_chunk(&plan, chunk, masks, to.at(first), &mut errors)?;
            first += num;
        }
        let num_scored = positions.len();
        self.queue
            .copy("digests", self.slots.digests(), to.digests, num_scored)?;
        let num_rows = plan.num_query_tokens();
        let faults = (self.buffers.faults, num_rows);
        let with_logprobs = plan
            .seqs
            .iter()
            .any(|seq| seq.sampling.top_logprobs.is_some());
        let wanted = (num_scored, with_logprobs);
        self.slots.download(&self.queue, slot, wanted, faults)?;
        self.recent.keep(&plan, self.slots.place(slot));
        Ok(CudaSampled {
            plan,
            num_rows,
            slot,
            errors,
        })
    }

    /// Queues the draws of the positions whose logits are held. Where the lists are full, they are sent and begun
    /// again.
    fn draw_chunk(
        &mut self,
        plan: &StepPlan,
        chunk: &[Position],
        masks: &MaskSet,
        to: Drawn,
        errors: &mut Vec<Option<SeqError>>,
    ) -> Result<(), CudaError> {
        let vocab_size = self.model.vocab_size();
        let mut from = 0;
        while from < chunk.len() {
            let (asked, event) = &mut self.asked[self.num_asked % 2];
            event.wait("earlier draws")?;
            asked.clear();
            let mut next = from;
            while next < chunk.len() && asked.has_room(&plan.seqs[chunk[next].seq_idx]) {
                let position = chunk[next];
                let seq = &plan.seqs[position.seq_idx];
                let scored = seq.scored[position.scored_idx];
                let mask = scored.mask.and_then(|row| masks.get(row));
                let pos = Pos(seq.start.0 + scored.query_idx + 1);
                let place = (position.scored_idx, next as u32, position.first_row);
                let added = check_width(seq, mask, vocab_size).and_then(|()| {
                    let added = asked.add(seq, place, mask);
                    added.map_err(|error| seq_error(seq, pos, error))
                });
                if added.is_err() {
                    asked.skip();
                }
                errors.push(added.err());
                next += 1;
            }
            assert!(next > from, "lists have room for one position at least");
            let inputs = (self.logits, self.buffers.tokens);
            asked.draw(&self.queue, inputs, &to.at(from))?;
            self.queue.record(event)?;
            self.num_asked += 1;
            from = next;
        }
        Ok(())
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        // Copies that are still queued name pinned memory, which is given up next.
        if self.queue.device().bind().is_ok() {
            let _ = self.queue.wait("the last steps");
        }
    }
}

/// A scored position of a plan.
#[derive(Clone, Copy)]
struct Position {
    seq_idx: usize,
    scored_idx: usize,
    // Of its sequence.
    first_row: usize,
}

fn positions(plan: &StepPlan) -> Vec<Position> {
    let mut positions = Vec::new();
    let mut first_row = 0;
    for (seq_idx, seq) in plan.seqs.iter().enumerate() {
        positions.extend((0..seq.scored.len()).map(|scored_idx| Position {
            seq_idx,
            scored_idx,
            first_row,
        }));
        first_row += seq.query.len();
    }
    positions
}

impl Backend for CudaBackend {
    type Forward = CudaForward;
    type Sampled = CudaSampled;

    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<CudaForward, BackendError> {
        check_plan(plan, &self.limits).map_err(BackendError::Refused)?;
        let arrays = self.try_forward(plan)?;
        Ok(CudaForward {
            plan: plan.clone(),
            arrays,
        })
    }

    fn draw(&mut self, forward: CudaForward, masks: &MaskSet) -> Result<CudaSampled, BackendError> {
        let expected = forward.plan.num_mask_rows;
        if masks.rows.len() != expected as usize {
            return Err(BackendError::Device(format!(
                "{} mask rows, expected {expected}",
                masks.rows.len()
            )));
        }
        Ok(self.try_draw(forward, masks)?)
    }

    fn collect(&mut self, sampled: CudaSampled) -> Result<StepOutput, BackendError> {
        Ok(self.try_collect(sampled)?)
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.drafters.has(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        admit_proposals(plan, &self.limits, |drafter| self.has_drafter(drafter))?;
        self.queue.device().bind().map_err(CudaError::from)?;
        Ok(self.drafters.propose(&self.queue, &self.model, plan)?)
    }
}
