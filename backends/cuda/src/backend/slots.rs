//! What a step holds while it is on its way: arrays that are being copied, draws on the device, answers on their way
//! back. There is a place for a few steps, used in turn.

use crate::CudaError;
use crate::device::Device;
use crate::draw::{Answers, Drawn};
use crate::memory::{Memory, Pinned, Ptr, Region};
use crate::queue::{Event, Queue};
use lockstep_step::{SeqId, StepId, StepPlan};
use std::collections::VecDeque;

/// Steps that can be on their way, or that later plans may refer to.
const SLOTS: usize = 4;

/// The places.
pub(super) struct Slots {
    staging: Vec<(Pinned<u32>, Event)>,
    num_staged: usize,
    answers: Vec<(Answers, Event)>,
    num_drawn: usize,
    // Of all slots, one after another.
    drawn: Drawn,
    // Digests of the step that runs: they are written at an address that does not change.
    digests: Ptr<u64>,
    scored_max: usize,
}

impl Slots {
    pub(super) fn new(
        device: &Device,
        memory: &mut Memory,
        (arrays_len, rows_max): (usize, usize),
    ) -> Result<Slots, CudaError> {
        // No row is scored twice.
        let scored_max = rows_max;
        let staging = (0..SLOTS).map(|_| {
            let pinned = Pinned::zeroed(device, arrays_len)?;
            Ok((pinned, Event::new(device)?))
        });
        let answers = (0..SLOTS).map(|_| {
            let answers = Answers::new(device, scored_max, rows_max)?;
            Ok((answers, Event::new(device)?))
        });
        Ok(Slots {
            staging: staging.collect::<Result<_, CudaError>>()?,
            num_staged: 0,
            answers: answers.collect::<Result<_, CudaError>>()?,
            num_drawn: 0,
            drawn: Drawn::claim(memory, SLOTS * scored_max)?,
            digests: memory.claim(Region::Buffers, "digests of the step", scored_max)?,
            scored_max,
        })
    }

    /// A buffer for the arrays of the next step, whose last copy has ended.
    pub(super) fn staging(&mut self) -> Result<&mut Pinned<u32>, CudaError> {
        let (pinned, event) = &mut self.staging[self.num_staged % SLOTS];
        event.wait("an earlier upload")?;
        Ok(pinned)
    }

    /// The copy of that buffer was queued.
    pub(super) fn staged(&mut self, queue: &Queue) -> Result<(), CudaError> {
        queue.record(&self.staging[self.num_staged % SLOTS].1)?;
        self.num_staged += 1;
        Ok(())
    }

    /// The slot of the next step that draws.
    pub(super) fn next(&mut self) -> usize {
        self.num_drawn += 1;
        (self.num_drawn - 1) % SLOTS
    }

    /// Where draws of all slots lie.
    pub(super) fn drawn(&self) -> Drawn {
        self.drawn
    }

    /// The first place of a slot's draws.
    pub(super) fn place(&self, slot: usize) -> usize {
        slot * self.scored_max
    }

    pub(super) fn drawn_of(&self, slot: usize) -> Drawn {
        self.drawn.at(self.place(slot))
    }

    pub(super) fn digests(&self) -> Ptr<u64> {
        self.digests
    }

    /// Queues the way back of a step's answers.
    pub(super) fn download(
        &mut self,
        queue: &Queue,
        slot: usize,
        wanted: (usize, bool),
        faults: (Ptr<u32>, usize),
    ) -> Result<(), CudaError> {
        let from = self.drawn_of(slot);
        let (answers, event) = &mut self.answers[slot];
        answers.download(queue, &from, wanted, faults)?;
        Ok(queue.record(event)?)
    }

    /// Waits for a step's answers.
    pub(super) fn wait(&self, slot: usize) -> Result<(), CudaError> {
        Ok(self.answers[slot].1.wait("a step")?)
    }

    /// A step's answers, which must have been waited for.
    pub(super) fn answers(&self, slot: usize) -> &Answers {
        &self.answers[slot].0
    }
}

/// Which step drew what where, so that later plans can name a draw that nobody has looked at yet.
#[derive(Default)]
pub(super) struct Recent {
    steps: VecDeque<(StepId, Vec<Drawing>)>,
}

struct Drawing {
    seq: SeqId,
    place: u32,
    num_scored: u32,
}

impl Recent {
    /// Keeps where a step draws: its positions lie one after another from `place` on.
    pub(super) fn keep(&mut self, plan: &StepPlan, place: usize) {
        self.steps.retain(|(step, _)| *step != plan.step);
        if self.steps.len() == SLOTS {
            self.steps.pop_front();
        }
        let mut next = place as u32;
        let drawings = plan.seqs.iter().map(|seq| {
            let num_scored = seq.scored.len() as u32;
            next += num_scored;
            Drawing {
                seq: seq.seq,
                place: next - num_scored,
                num_scored,
            }
        });
        self.steps.push_back((plan.step, drawings.collect()));
    }

    /// Where a draw lies among those of all slots.
    pub(super) fn find(&self, seq: SeqId, step: StepId, scored_idx: u32) -> Option<u32> {
        let (_, drawings) = self.steps.iter().find(|(of, _)| *of == step)?;
        let at = drawings
            .binary_search_by_key(&seq, |drawing| drawing.seq)
            .ok()?;
        let drawing = &drawings[at];
        (scored_idx < drawing.num_scored).then_some(drawing.place + scored_idx)
    }
}
