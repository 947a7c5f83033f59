//! Digests of operations that were recorded, held against those of a fresh engine: the first that differs says where in
//! the model a step went wrong. What a step computed for drafts that were wrong counts for nothing, and is left out.

use crate::capture::Capture;
use crate::mirror::Seen;
use crate::record::OpRecord;
use crate::stage::Divergence;
use lockstep_step::{OpDigest, SeqId, StepId};
use std::collections::BTreeMap;

/// An operation that computed something else than it should have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Differing {
    pub(super) seq: SeqId,
    pub(super) step: StepId,
    pub(super) pos: u32,
    /// Its place among the operations for this token.
    order: usize,
    /// The layer and the operation, in words.
    pub(super) name: String,
    expected: String,
    found: String,
}

impl Differing {
    /// As what differs first.
    pub(super) fn divergence(&self) -> Divergence {
        Divergence {
            seq: self.seq,
            step: Some(self.step),
            pos: Some(self.pos),
            expected: self.expected.clone(),
            found: self.found.clone(),
            near: Some(self.name.clone()),
        }
    }
}

/// What was recorded, by sequence and position: a position is computed again after its sequence lost its blocks.
#[derive(Default)]
pub(super) struct Ops<'a> {
    recorded: BTreeMap<(SeqId, u32), BTreeMap<StepId, Vec<&'a OpRecord>>>,
    /// Of each sequence, the first that differs.
    pub(super) differing: BTreeMap<SeqId, Differing>,
    /// Digests that were compared.
    pub(super) num_compared: u64,
}

impl<'a> Ops<'a> {
    /// Those of all tokens that counted.
    pub(super) fn of(capture: &'a Capture, seen: &Seen) -> Ops<'a> {
        let mut ops = Ops::default();
        for (id, step) in &capture.steps {
            for part in &step.plan.seqs {
                let fate = seen.fates.get(&(*id, part.seq)).filter(|own| own.counts);
                let Some(fate) = fate.filter(|_| !step.ops.is_empty()) else {
                    continue;
                };
                let num_right = part.query.len() - part.num_drafts as usize + fate.num_accepted;
                let right = part.start.0..part.start.0 + num_right as u32;
                let own = step.ops.iter();
                let own = own.filter(|op| op.seq == part.seq && right.contains(&op.pos));
                for op in own {
                    let of_place = ops.recorded.entry((op.seq, op.pos)).or_default();
                    of_place.entry(*id).or_default().push(op);
                }
            }
        }
        ops
    }

    /// Whether none were recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.recorded.is_empty()
    }

    /// Compares what a fresh engine computed for one token. `seq` is the recorded name of its sequence.
    pub(super) fn compare(&mut self, seq: SeqId, pos: u32, fresh: &[OpDigest]) {
        let Some(of_place) = self.recorded.get(&(seq, pos)) else {
            return;
        };
        for (&step, recorded) in of_place {
            // Both are in the order of the model, and either may lack what is computed of scored positions alone.
            for (order, own) in fresh.iter().enumerate() {
                let is_same = |op: &&&OpRecord| op.op == own.op && op.layer == own.layer;
                let Some(found) = recorded.iter().find(is_same) else {
                    continue;
                };
                self.num_compared += 1;
                if found.digest == own.digest {
                    continue;
                }
                let differing = Differing {
                    seq,
                    step,
                    pos,
                    order,
                    name: own.to_string(),
                    expected: own.digest.to_string(),
                    found: found.digest.to_string(),
                };
                let place = |own: &Differing| (own.step, own.pos, own.order);
                let first = self.differing.get(&seq);
                if first.is_none_or(|first| place(&differing) < place(first)) {
                    self.differing.insert(seq, differing);
                }
                break;
            }
        }
    }
}
