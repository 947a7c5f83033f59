//! One request out of a longer capture: its own records, and its own parts of the steps that it shared. It must
//! never let anything of another request through.

use crate::record::Record;
use lockstep_step::{MaskRow, SeqId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// Lets through what is about one request.
pub struct OfRequest<'a> {
    request_id: &'a str,
    seqs: BTreeSet<SeqId>,
    /// Mask rows of its parts, by step that it has a part of.
    steps: BTreeMap<StepId, BTreeSet<MaskRow>>,
}

/// A filter for the request of this id.
pub fn of_request(request_id: &str) -> OfRequest<'_> {
    OfRequest {
        request_id,
        seqs: BTreeSet::new(),
        steps: BTreeMap::new(),
    }
}

impl OfRequest<'_> {
    /// Its sequences, as far as they were asked for by now.
    pub fn seqs(&self) -> &BTreeSet<SeqId> {
        &self.seqs
    }

    /// What of a record is about it, if anything.
    pub fn filter(&mut self, record: Record) -> Option<Record> {
        match record {
            Record::Request(request) => {
                let is_own = request.request_id == self.request_id;
                if is_own {
                    self.seqs.insert(request.seq);
                }
                is_own.then_some(Record::Request(request))
            }
            Record::Left(seq) => self.seqs.contains(&seq).then_some(Record::Left(seq)),
            Record::Plan(mut plan) => {
                plan.seqs.retain(|part| self.seqs.contains(&part.seq));
                if plan.seqs.is_empty() {
                    return None;
                }
                let scored = plan.seqs.iter().flat_map(|part| &part.scored);
                let rows = scored.filter_map(|scored| scored.mask).collect();
                self.steps.insert(plan.step, rows);
                // Later ones are never asked for again.
                while self.steps.len() > 8 {
                    self.steps.pop_first();
                }
                Some(Record::Plan(plan))
            }
            Record::Masks(step, mut rows) => {
                let own = self.steps.get(&step)?;
                for (idx, row) in rows.iter_mut().enumerate() {
                    if !own.contains(&MaskRow(idx as u32)) {
                        *row = None;
                    }
                }
                Some(Record::Masks(step, rows))
            }
            Record::Output(step, result) => {
                self.steps.get(&step)?;
                let result = result.map(|mut output| {
                    output.seqs.retain(|own| self.seqs.contains(&own.seq));
                    output
                });
                Some(Record::Output(step, result))
            }
            Record::Proposals(step, mut plan, mut proposals) => {
                plan.seqs.retain(|own| self.seqs.contains(&own.seq));
                proposals.retain(|own| self.seqs.contains(&own.seq));
                let is_empty = plan.seqs.is_empty();
                (!is_empty).then_some(Record::Proposals(step, plan, proposals))
            }
            Record::Event(event) => {
                let is_own = self.seqs.contains(&event.seq);
                is_own.then_some(Record::Event(event))
            }
            Record::Stream(stream) => {
                let is_own = stream.request_id == self.request_id;
                is_own.then_some(Record::Stream(stream))
            }
            Record::Ops(step, mut ops) => {
                ops.retain(|op| self.seqs.contains(&op.seq));
                (!ops.is_empty()).then_some(Record::Ops(step, ops))
            }
            record @ (Record::End(_) | Record::Lost(_)) => {
                (!self.seqs.is_empty()).then_some(record)
            }
        }
    }
}
