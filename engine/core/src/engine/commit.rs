//! The second half of a step: verifies drafts, lets sequences grow by exactly what was accepted, and ends
//! the step's leases. This is the only place that moves a sequence's counters forward.

use super::Engine;
#[cfg(planted)]
use super::misdeeds;
use crate::in_flight::{MaskState, RunningSeq, RunningStep};
use crate::output::Ending;
use crate::sequence::num_blocks_for;
use crate::verify::verify;
use crate::{DraftSource, EngineFault, Finish, RequestError};
use alloc::{format, string::String, vec::Vec};
use lockstep_step::{
    BLOCK_LEN, Draw, RowId, SeqError, SeqId, SeqOutput, StepId, StepOutput, planted,
};

impl Engine {
    pub(super) fn commit_step(&mut self, output: StepOutput) -> Result<(), EngineFault> {
        let oldest = self.in_flight.oldest().map(|running| running.step);
        let Some(mut running) = self.in_flight.pop(output.step) else {
            return Err(EngineFault::UnknownStep {
                step: output.step,
                in_flight: oldest,
            });
        };
        check_shape(&running, &output)?;
        self.scheduler.memory.blocks.end_step()?;
        if let Some(ledger) = &mut self.ledger {
            ledger.note_draws(&output);
        }
        let num_draws = |seq: &SeqOutput| seq.draws.as_ref().map_or(1, Vec::len);
        self.events.reserve(output.seqs.iter().map(num_draws).sum());
        for (part, answer) in running.seqs.iter().zip(output.seqs) {
            let kept = self.commit_seq(running.step, part, answer.draws)?;
            self.end_leases(part, kept)?;
        }
        running.seqs.clear();
        self.spare.running = running.seqs;
        self.check_conservation()
    }

    pub(super) fn fail_running_step(
        &mut self,
        step: StepId,
        error: String,
    ) -> Result<(), EngineFault> {
        let Some(running) = self.in_flight.pop(step) else {
            return Ok(());
        };
        self.scheduler.memory.blocks.end_step()?;
        for part in &running.seqs {
            // Planted: vllm-project/vllm#43569.
            if planted!(EagerRegistrationKept)
                && let Some(seq) = self.scheduler.seqs.get_mut(part.seq)
                && part.counts_for(seq)
            {
                seq.num_computed_tokens += part.num_committed;
                self.scheduler.memory.publish(seq, |_| None)?;
            }
            self.end_with(part.seq, RequestError::Engine(error.clone()))?;
            self.end_leases(part, None)?;
        }
        self.check_conservation()
    }

    /// Lets a sequence grow. Returns the written row that it keeps.
    fn commit_seq(
        &mut self,
        step: StepId,
        part: &RunningSeq,
        draws: Result<Vec<Draw>, SeqError>,
    ) -> Result<Option<RowId>, EngineFault> {
        // It ended while the step ran: what was drawn after that is nobody's.
        let Some(seq) = self.scheduler.seqs.get(part.seq) else {
            #[cfg(planted)]
            misdeeds::late_answer(part.seq)?;
            return Ok(None);
        };
        // Planted: vllm-project/vllm#48245.
        let is_reset = planted!(PlaceholderUnderflowOnPreempt) && seq.num_computed_tokens == 0;
        if !part.counts_for(seq) && !is_reset {
            self.totals.num_void_parts += 1;
            #[cfg(planted)]
            self.deliver_late(part, draws);
            return Ok(None);
        }
        let drawn = draws.map_err(RequestError::Seq);
        let known = num_known(part);
        let (num_known, mut draws) = match known.and_then(|num_known| Ok((num_known, drawn?))) {
            Ok(both) => both,
            #[cfg(planted)]
            Err(error) if misdeeds::is_only_logged(&error) => return Ok(None),
            Err(error) => return self.end_with(part.seq, error).map(|()| None),
        };
        let num_drawn = draws.len();
        draws.truncate(num_known);
        let drafts = part.drafts.iter().map(|draft| draft.token);
        let verdict = verify(drafts, draws.iter().map(|draw| draw.token));
        if num_drawn > part.num_scored || verdict.is_some() != (part.num_scored > 0) {
            return Err(EngineFault::OutputShape {
                step,
                seq: Some(part.seq),
                detail: format!("{num_drawn} draws for {} positions", part.num_scored),
            });
        }
        let num_accepted = verdict.map_or(0, |verdict| verdict.num_accepted);
        let mut num_new = verdict.map_or(0, |verdict| verdict.num_accepted + 1);
        // Planted: vllm-project/vllm#56419.
        if planted!(GrammarRejectsAllDraftsZero) && num_known == 1 && part.num_scored > 1 {
            num_new = num_accepted;
        }
        #[cfg(planted)]
        let mut block = misdeeds::Block::of(part, seq, &draws[..num_new]);
        for (idx, draw) in draws.into_iter().take(num_new).enumerate() {
            if idx < num_accepted {
                self.note_accepted(part.seq, part.drafts[idx].source);
            }
            #[cfg(planted)]
            if let Err(error) = block.before(self, idx) {
                return self.end_with(part.seq, error).map(|()| None);
            }
            let ending = self.push_token(part.seq, draw);
            #[cfg(planted)]
            block.after(self, idx, ending.as_ref());
            if let Some(ending) = ending {
                // What was drawn after the end is void, drafts included; what was computed before it may
                // serve others, unless something is wrong with it.
                let kept = match &ending.finish {
                    Finish::Error(_) => None,
                    _ => self.advance(part, idx)?,
                };
                return self.end(part.seq, ending).map(|()| kept);
            }
        }
        self.advance(part, num_accepted)
    }

    /// Counts a draft that was right.
    fn note_accepted(&mut self, seq: SeqId, source: DraftSource) {
        self.totals.num_drafts_accepted += 1;
        self.totals.drafts.note_accepted(source);
        if let Some(seq) = self.scheduler.seqs.get_mut(seq) {
            seq.drafts.totals.note_accepted(source);
        }
    }

    /// Takes one token: the matcher, then the output. Some if the sequence ends with it.
    fn push_token(&mut self, id: SeqId, draw: Draw) -> Option<Ending> {
        let seq = self.scheduler.seqs.get_mut(id)?;
        let token = draw.token;
        if let Some(constraint) = &mut seq.constraint
            && !seq.output.is_end(token)
            && let Err(error) = constraint.consume(token)
        {
            return Some(RequestError::Matcher(error).into());
        }
        seq.token_ids.push(token);
        self.totals.num_output_tokens += 1;
        let mut said = core::mem::take(&mut self.said);
        let ending = seq.output.push(draw, &self.vocabulary, &mut said);
        let at = seq.output.num_tokens();
        for kind in said.kinds.drain(..) {
            self.emit(id, at, kind);
        }
        self.said = said;
        ending
    }

    /// Moves length, row and blocks forward by the committed tokens and the accepted drafts, and lets others
    /// find what is full; whatever was computed beyond is given up.
    fn advance(
        &mut self,
        part: &RunningSeq,
        num_accepted: usize,
    ) -> Result<Option<RowId>, EngineFault> {
        let (seqs, memory) = (&mut self.scheduler.seqs, &mut self.scheduler.memory);
        let Some(seq) = seqs.get_mut(part.seq) else {
            return Ok(None);
        };
        seq.num_computed_tokens += part.num_committed + num_accepted;
        seq.drafts.learn(&part.drafts, num_accepted);
        let mut column = num_accepted;
        // Planted: vllm-project/vllm#48475.
        if planted!(ZeroAcceptMinusOneIndex) && num_accepted == 0 {
            column = part.writes.len().saturating_sub(1);
        }
        // Planted: vllm-project/vllm-xpu-kernels#544.
        if planted!(ConvLayoutTokenIndexed)
            && num_accepted > 1
            && seq.num_computed_tokens % BLOCK_LEN as usize <= num_accepted
        {
            column -= 1;
        }
        let kept = part.writes.get(column).copied();
        if let Some(row) = core::mem::replace(&mut seq.row, kept) {
            memory.rows.release(row)?;
        }
        // A part that was planned ahead and still counts computes further than what is committed.
        let next = self.in_flight.last(part.seq).map(|(_, next)| next);
        let next = next.filter(|next| next.counts_for(seq));
        let end = next.map_or(0, RunningSeq::end).max(seq.token_ids.len());
        memory
            .blocks
            .truncate(&mut seq.block_table, num_blocks_for(end))?;
        if seq.num_computed_tokens >= seq.token_ids.len() {
            return Err(EngineFault::Sequence {
                seq: part.seq,
                detail: format!(
                    "{} of {} tokens are computed: none is left",
                    seq.num_computed_tokens,
                    seq.token_ids.len()
                ),
            });
        }
        memory.publish(seq, |len| part.state(num_accepted, len))?;
        Ok(kept)
    }

    /// Says what a step drew for a sequence that had lost its blocks meanwhile.
    #[cfg(planted)]
    fn deliver_late(&mut self, part: &RunningSeq, draws: Result<Vec<Draw>, SeqError>) {
        let seq = self.scheduler.seqs.get_mut(part.seq);
        let seq = seq.filter(|seq| seq.num_computed_tokens == 0);
        let draw = draws.ok().and_then(|draws| draws.into_iter().next());
        // Planted: vllm-project/vllm#38624.
        if let (true, Some(seq), Some(draw)) = (planted!(PreemptKeepsLatestToken), seq, draw) {
            let mut said = core::mem::take(&mut self.said);
            seq.output.push(draw, &self.vocabulary, &mut said);
            let at = seq.output.num_tokens();
            for kind in said.kinds.drain(..) {
                self.emit(part.seq, at, kind);
            }
            self.said = said;
        }
    }

    /// Ends what a part of a step held. Rows that nobody keeps are given up.
    fn end_leases(&mut self, part: &RunningSeq, kept: Option<RowId>) -> Result<(), EngineFault> {
        let memory = &mut self.scheduler.memory;
        if let Some(row) = part.read {
            memory.rows.end_lease(row)?;
        }
        for row in part.written().filter(|&row| Some(row) != kept) {
            memory.rows.release(row)?;
        }
        Ok(())
    }

    /// Free, cached and held ones are all there are, and where nothing runs only the cache holds anything.
    fn check_conservation(&self) -> Result<(), EngineFault> {
        let nothing_runs = !self.has_work();
        let memory = &self.scheduler.memory;
        memory.blocks.pool().check(nothing_runs)?;
        memory.rows.pool().check(nothing_runs)
    }
}

/// How many draws may count: one that was drawn without its mask never does, and the sequence goes on
/// after the one before.
fn num_known(part: &RunningSeq) -> Result<usize, RequestError> {
    match &part.masks {
        MaskState::Free => Ok(part.num_scored),
        MaskState::Filled { num_rows } => Ok(*num_rows),
        MaskState::Pending => Err(RequestError::Matcher(
            "its masks were not filled before the step was answered".into(),
        )),
        MaskState::Failed(error) => Err(error.clone()),
    }
}

/// An output names the sequences of its plan, in its order.
fn check_shape(running: &RunningStep, output: &StepOutput) -> Result<(), EngineFault> {
    let planned = running.seqs.iter().map(|part| part.seq);
    let answered = output.seqs.iter().map(|answer| answer.seq);
    if planned.eq(answered) {
        return Ok(());
    }
    Err(EngineFault::OutputShape {
        step: running.step,
        seq: None,
        detail: format!(
            "{} sequences were planned and {} answered, or others",
            running.seqs.len(),
            output.seqs.len()
        ),
    })
}
