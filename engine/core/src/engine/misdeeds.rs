//! What planted faults do wrongly when a step is committed, a sequence is aborted or masks are put in place. It
//! must never be in a build that serves anybody.

use super::Engine;
use crate::constraint::Constraint;
use crate::in_flight::RunningSeq;
use crate::output::Ending;
use crate::sequence::Sequence;
use crate::{EngineFault, EventKind, Finish, RequestError};
use alloc::vec::Vec;
use lockstep_step::{Draw, MaskSet, SeqError, SeqId, StepPlan, TokenId, planted};

/// The tokens of one commit of a sequence, all of which are known before the first is taken.
pub(super) struct Block {
    seq: SeqId,
    draws: Vec<Draw>,
    drafts: Vec<TokenId>,
    began_in_reasoning: bool,
    /// The matcher, while a token is kept from it.
    held: Option<Constraint>,
}

impl Block {
    pub(super) fn of(part: &RunningSeq, seq: &Sequence, draws: &[Draw]) -> Block {
        Block {
            seq: part.seq,
            draws: draws.to_vec(),
            drafts: part.drafts.iter().map(|draft| draft.token).collect(),
            began_in_reasoning: seq.output.in_reasoning(),
            held: None,
        }
    }

    /// Before a token is taken.
    pub(super) fn before(&mut self, engine: &mut Engine, idx: usize) -> Result<(), RequestError> {
        let (token, len) = (self.draws[idx].token, self.draws.len());
        let is_last = idx + 1 == len;
        let closes = engine.vocabulary.bytes(token) == b"</think>";
        let Some(seq) = engine.scheduler.seqs.get_mut(self.seq) else {
            return Ok(());
        };
        seq.output.place = (idx, len);
        // Planted: sgl-project/sglang#33643.
        if planted!(PenaltyOncePerStep) && !is_last {
            seq.misdeeds.uncounted.insert(seq.token_ids.len());
        }
        let in_reasoning = seq.output.in_reasoning();
        // Planted: vllm-project/vllm#48516.
        let is_late = planted!(MatcherOneTokenBehind) && self.began_in_reasoning && !in_reasoning;
        // Planted: vllm-project/vllm#44927.
        let is_missed = planted!(ReasoningEndUnseen)
            && !self.drafts.is_empty()
            && is_last
            && in_reasoning
            && closes;
        if is_late || is_missed {
            self.held = seq.constraint.take();
        }
        // Planted: vllm-project/vllm#52805.
        if planted!(TakenPastTheEnd)
            && self.drafts.get(idx) == Some(&token)
            && seq.output.is_end(token)
            && let Some(constraint) = &mut seq.constraint
        {
            constraint.consume(token).map_err(RequestError::Matcher)?;
        }
        Ok(())
    }

    /// After it was taken.
    pub(super) fn after(&mut self, engine: &mut Engine, idx: usize, ending: Option<&Ending>) {
        let Some(seq) = engine.scheduler.seqs.get_mut(self.seq) else {
            return;
        };
        if let Some(held) = self.held.take() {
            seq.constraint = Some(held);
        }
        let Some(ending) = ending else {
            return;
        };
        let rest = &self.draws[idx + 1..];
        // Planted: sgl-project/sglang#39826.
        if planted!(ReasoningCountsTheBlock) && self.began_in_reasoning {
            seq.output.count_reasoning(rest.len());
        }
        // Planted: vllm-project/vllm#47616.
        if planted!(StopKeepsTokens) && matches!(ending.finish, Finish::StopString(_)) {
            let mut kinds = Vec::new();
            for draw in rest {
                seq.output.count(1);
                kinds.push(EventKind::Token {
                    token: draw.token,
                    bytes: engine.vocabulary.bytes(draw.token).into(),
                    logprobs: draw.logprobs.clone(),
                    digest: draw.digest,
                });
            }
            let at = seq.output.num_tokens();
            for kind in kinds {
                engine.emit(self.seq, at, kind);
            }
        }
    }
}

/// Whether an error is only written into a log: that nothing is allowed, or that a matcher failed.
pub(super) fn is_only_logged(error: &RequestError) -> bool {
    // Planted: vllm-project/vllm#38663.
    planted!(RefusalOnlyLogged)
        && matches!(
            error,
            RequestError::Matcher(_) | RequestError::Seq(SeqError::NothingAllowed { .. })
        )
}

/// An answer for a sequence that is no longer there.
pub(super) fn late_answer(seq: SeqId) -> Result<(), EngineFault> {
    // Planted: LMCache/LMCache#4185.
    match planted!(LateAnswerAsserts) {
        false => Ok(()),
        true => Err(EngineFault::Sequence {
            seq,
            detail: "was answered, and is not there".into(),
        }),
    }
}

/// What an abort looks up and does not find.
pub(super) fn abort(id: SeqId, seq: Option<&Sequence>) -> Result<(), EngineFault> {
    let missing = match seq {
        // Planted: vllm-project/vllm#18485.
        Some(seq) => planted!(AbortNeedsBlocks) && !seq.was_scheduled,
        // Planted: vllm-project/vllm#25067.
        None => planted!(AbortAfterFinish),
    };
    if !missing {
        return Ok(());
    }
    Err(EngineFault::Sequence {
        seq: id,
        detail: "is aborted, and its blocks are not there".into(),
    })
}

/// Puts masks where they do not belong.
pub(super) fn misplace(plan: &StepPlan, masks: &mut MaskSet) {
    let planned = plan.seqs.iter().map(|seq| {
        let rows = seq.scored.iter().filter_map(|scored| scored.mask);
        rows.map(|row| row.0 as usize).collect::<Vec<usize>>()
    });
    let planned: Vec<Vec<usize>> = planned.filter(|rows| !rows.is_empty()).collect();
    let right = masks.rows.clone();
    let mut put = |at: usize, from: usize| masks.rows[at] = right.get(from).cloned().flatten();
    // Planted: sgl-project/sglang#7321.
    if planted!(MaskBufferShared) {
        for (nth, &at) in planned.iter().flat_map(|rows| rows.iter().enumerate()) {
            let of_this = planned.iter().filter_map(|rows| rows.get(nth));
            let last = of_this.rev().find(|&&from| right[from].is_some());
            put(at, last.copied().unwrap_or(at));
        }
    }
    // Planted: vllm-project/vllm#50952.
    if planted!(MaskRowsByDepth) {
        let depth = planned.iter().map(Vec::len).max().unwrap_or(0);
        for (seq, rows) in planned.iter().enumerate() {
            let numbered = rows.iter().enumerate();
            numbered.for_each(|(nth, &at)| put(at, seq * depth + nth));
        }
    }
    // Planted: guoqingbao/xinfer#232.
    if planted!(MaskRowsEnumerated) {
        let filled = (0..right.len()).filter(|&from| right[from].is_some());
        filled.enumerate().for_each(|(at, from)| put(at, from));
    }
}
