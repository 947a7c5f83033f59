//! Where a sequence will stand when the next step begins. With nothing of it in flight that is where it stands.
//! Otherwise a step is planned before it is known what the step before it draws: as if every draft in flight
//! were right. If one isn't, the part that was planned so is void, and the sequence goes on from where it
//! does stand.

use crate::draft::Draft;
use crate::in_flight::{InFlight, RunningSeq};
use crate::sequence::Sequence;
use alloc::vec::Vec;
#[cfg(planted)]
use lockstep_step::planted;
use lockstep_step::{QueryToken, RowId, SeqId, StepId, TokenId};

/// Where a part of the next step begins.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// Positions that are computed by then.
    pub(crate) start: usize,
    /// The state after them.
    pub(crate) row: Option<RowId>,
    /// What the sequence's part in flight draws, where it draws anything.
    pub(crate) in_flight: Option<Drawing>,
}

/// A part in flight that draws, each of its drafts taken to be right.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    step: StepId,
    pub(crate) drafts: Vec<Draft>,
}

impl Drawing {
    /// The token that is drawn after all drafts.
    fn last(&self) -> QueryToken {
        QueryToken::Drawn {
            step: self.step,
            scored_idx: self.drafts.len() as u32,
        }
    }
}

impl Standing {
    pub(crate) fn of(id: SeqId, seq: &Sequence, in_flight: &InFlight) -> Standing {
        let running = in_flight.last(id).filter(|(_, part)| part.counts_for(seq));
        let Some((step, part)) = running else {
            return Standing {
                start: seq.num_computed_tokens,
                row: seq.row,
                in_flight: None,
            };
        };
        Standing {
            start: part.end(),
            row: part.writes.last().copied(),
            in_flight: (part.num_scored > 0).then(|| Drawing {
                step,
                drafts: part.drafts.clone(),
            }),
        }
    }

    /// What stands for the token in flight.
    #[cfg(planted)]
    pub(crate) fn drawn(&self) -> Option<QueryToken> {
        self.in_flight.as_ref().map(Drawing::last)
    }

    /// Tokens of the sequence that nobody has committed yet: drafts in flight, and the draw after them.
    pub(crate) fn num_in_flight(&self) -> usize {
        let drawing = self.in_flight.as_ref();
        drawing.map_or(0, |drawing| drawing.drafts.len() + 1)
    }

    /// Tokens that are there to be computed; at least one.
    pub(crate) fn num_uncomputed(&self, seq: &Sequence) -> usize {
        seq.token_ids.len() + self.num_in_flight() - self.start
    }

    /// Drafts in flight.
    pub(crate) fn drafts(&self) -> impl Iterator<Item = TokenId> + '_ {
        let drawing = self.in_flight.iter();
        drawing.flat_map(|drawing| drawing.drafts.iter().map(|draft| draft.token))
    }

    /// Appends the first `num_tokens` of the tokens to be computed.
    pub(crate) fn query(&self, seq: &Sequence, num_tokens: usize, query: &mut Vec<QueryToken>) {
        match &self.in_flight {
            Some(drawing) => query.push(drawing.last()),
            // Planted: vllm-project/vllm#46899.
            #[cfg(planted)]
            None if planted!(StaleMinusOnePlaceholders)
                && num_tokens == 1
                && seq.misdeeds.placeholder.is_some() =>
            {
                query.extend(seq.misdeeds.placeholder);
            }
            None => {
                let known = &seq.token_ids[self.start..self.start + num_tokens];
                query.extend(known.iter().copied().map(QueryToken::Known));
            }
        }
    }
}

impl RunningSeq {
    /// One past the last position that it computes.
    pub(crate) fn end(&self) -> usize {
        self.start + self.num_committed + self.drafts.len()
    }

    /// Whether it begins where the sequence stands. Otherwise it was planned from drafts that were wrong, and
    /// nothing of it counts.
    pub(crate) fn counts_for(&self, seq: &Sequence) -> bool {
        self.start == seq.num_computed_tokens
    }
}
