//! From what came back of a step to its output: the same words that the CPU finds, from a few numbers per position.

use super::{CudaBackend, CudaSampled};
use crate::CudaError;
use lockstep_numerics::sampler::DrawError;
use lockstep_sampling::{draw_seq, seq_error};
use lockstep_step::{Digest, Draw, Logprobs, Pos, SeqError, SeqOutput, SeqPlan, StepOutput};
use std::ops::Range;

impl CudaBackend {
    pub(super) fn try_collect(&mut self, sampled: CudaSampled) -> Result<StepOutput, CudaError> {
        self.queue.device().bind()?;
        self.slots.wait(sampled.slot)?;
        let CudaSampled { plan, errors, .. } = &sampled;
        let (mut rows, mut scored) = (0..0, 0..0);
        let mut seqs = Vec::with_capacity(plan.seqs.len());
        for seq in &plan.seqs {
            rows = rows.end..rows.end + seq.query.len();
            scored = scored.end..scored.end + seq.scored.len();
            let place = Place {
                slot: sampled.slot,
                rows: rows.clone(),
                first_scored: scored.start,
            };
            let draws = self.draws_of(seq, &place, &errors[scored.clone()]);
            seqs.push(SeqOutput {
                seq: seq.seq,
                draws,
            });
        }
        assert_eq!(rows.end, sampled.num_rows, "rows of the step");
        self.drawn.keep(plan.step, &seqs);
        Ok(StepOutput {
            step: plan.step,
            seqs,
        })
    }

    fn draws_of(
        &self,
        seq: &SeqPlan,
        place: &Place,
        errors: &[Option<SeqError>],
    ) -> Result<Vec<Draw>, SeqError> {
        let (tokens, refused) = self.drawn.resolve(seq);
        let refused = refused.map(SeqError::Refused);
        let error_at = |query_idx: usize| {
            let refused = refused.clone();
            refused.or_else(|| self.fault_at(seq, place, query_idx))
        };
        // Nothing is drawn here, so that the error would otherwise be lost.
        if seq.scored.is_empty()
            && let Some(error) = error_at(seq.query.len() - 1)
        {
            return Err(error);
        }
        draw_seq(seq, &tokens, |idx| {
            let scored = seq.scored[idx];
            let known = error_at(scored.query_idx as usize).or_else(|| errors[idx].clone());
            match known {
                Some(error) => Err(error),
                None => self.draw_at(seq, place, idx),
            }
        })
    }

    /// The error of a position: that of the first faulty row of its sequence up to its own.
    fn fault_at(&self, seq: &SeqPlan, place: &Place, query_idx: usize) -> Option<SeqError> {
        let answers = self.slots.answers(place.slot);
        let (query_idx, op) =
            (0..=query_idx).find_map(|idx| Some((idx, answers.fault(place.rows.start + idx)?)))?;
        let (name, layer) = self.model.op(op);
        Some(SeqError::NotFinite {
            op: name.to_owned(),
            layer,
            pos: Pos(seq.start.0 + query_idx as u32),
        })
    }

    fn draw_at(&self, seq: &SeqPlan, place: &Place, idx: usize) -> Result<Draw, SeqError> {
        let num_top = seq.sampling.top_logprobs;
        let answers = self.slots.answers(place.slot);
        let answer = answers.at(place.first_scored + idx, num_top.unwrap_or(0) as usize);
        let pos = Pos(seq.start.0 + seq.scored[idx].query_idx + 1);
        let answer = answer.map_err(|error: DrawError| seq_error(seq, pos, error))?;
        Ok(Draw {
            token: answer.token,
            digest: Digest(answer.digest),
            logprobs: num_top.map(|_| Logprobs {
                drawn: answer.logprob,
                top: answer.top,
            }),
        })
    }
}

/// Where a sequence's part of a step lies.
struct Place {
    slot: usize,
    rows: Range<usize>,
    first_scored: usize,
}
