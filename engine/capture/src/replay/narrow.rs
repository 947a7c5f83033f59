//! Finds the operation that went wrong where a capture has no digests of operations: its plans are computed again as
//! they stand on a backend of the kind that is suspected, watched, and what its operations computed is held against a
//! fresh engine as if it had been recorded.
//!
//! It must never compute a plan that reads what no step of the capture wrote: that would be somebody's garbage.

use super::plans::renumbered;
use super::{ReplayError, Replayed, Witness, replay};
use crate::capture::{Capture, Step};
use crate::record::{OpRecord, Redaction};
use lockstep_step::{
    Backend, BackendError, Ledger, MaskSet, OpDigest, QueryToken, SeqId, StepId, StepPlan, TokenId,
};

/// Replays a capture with digests of operations that `suspect` computes now. It is of the kind that was recorded, has
/// computed nothing and holds as much. Where it does again what it did then, and that was wrong, the divergence of the
/// logits names the operation; where it does not, it names none.
///
/// # Errors
/// As [`replay`], or if the suspect has no digests of operations, or none that the witness has too, or if the capture
/// is not whole enough for its plans to be computed.
pub fn narrow<S: Backend, B: Backend>(
    capture: &Capture,
    suspect: S,
    witness: Witness<'_, B>,
) -> Result<Replayed, ReplayError> {
    let watched = watched(capture, suspect)?;
    let replayed = replay(&watched, witness)?;
    match replayed.num_ops {
        0 => Err(ReplayError::NoOps),
        _ => Ok(replayed),
    }
}

/// A capture with the digests of operations that a backend computes for its plans now.
///
/// # Errors
/// As [`narrow`].
pub fn watched<S: Backend>(capture: &Capture, mut suspect: S) -> Result<Capture, ReplayError> {
    if capture.header.redaction == Redaction::Tokens {
        let why = "token ids are left out of the capture, so that its plans can't be computed";
        return Err(ReplayError::Failed(why.to_string()));
    }
    if !suspect.watch_ops(true) {
        return Err(ReplayError::NoOps);
    }
    let limits = suspect.limits();
    let mut ledger = Ledger::new();
    let mut watched = capture.clone();
    for (id, step) in &capture.steps {
        // What failed left nothing behind that counts.
        let Some(Ok(_)) = &step.output else {
            continue;
        };
        let plan = renumbered(&resolved(capture, step));
        ledger.admit(&plan, &limits).map_err(|error| {
            let why = format!("its plans can't be computed from its beginning: step {id}: {error}");
            ReplayError::Failed(why)
        })?;
        let ops = computed(&mut suspect, &plan);
        let ops = ops.map_err(|error| ReplayError::Failed(format!("step {id}: {error}")))?;
        if let Some(step) = watched.steps.get_mut(id) {
            step.ops = ops.into_iter().map(OpRecord::from).collect();
        }
    }
    Ok(watched)
}

/// What the operations of a step compute. Its draws don't matter: what was drawn is part of the next plan.
fn computed<S: Backend>(suspect: &mut S, plan: &StepPlan) -> Result<Vec<OpDigest>, BackendError> {
    let forward = suspect.forward(plan)?;
    let masks = MaskSet {
        rows: vec![None; plan.num_mask_rows as usize],
    };
    suspect.sample(forward, &masks)?;
    Ok(suspect.take_ops(plan.step))
}

/// A plan with the tokens that were drawn in place of references to draws.
fn resolved(capture: &Capture, step: &Step) -> StepPlan {
    let mut plan = step.plan.clone();
    for part in &mut plan.seqs {
        for token in &mut part.query {
            if let QueryToken::Drawn { step, scored_idx } = *token {
                // One that was never drawn is of a part that counts for nothing.
                let drawn = drawn(capture, step, part.seq, scored_idx);
                *token = QueryToken::Known(drawn.unwrap_or(TokenId(0)));
            }
        }
    }
    plan
}

fn drawn(capture: &Capture, step: StepId, seq: SeqId, scored_idx: u32) -> Option<TokenId> {
    let output = capture.steps.get(&step)?.output.as_ref()?.as_ref().ok()?;
    let own = output.seqs.iter().find(|own| own.seq == seq)?;
    let draw = own.draws.as_ref().ok()?.get(scored_idx as usize)?;
    Some(draw.token)
}

impl From<OpDigest> for OpRecord {
    fn from(op: OpDigest) -> OpRecord {
        OpRecord {
            seq: op.seq,
            pos: op.pos.0,
            layer: op.layer,
            op: op.op.to_string(),
            digest: op.digest,
        }
    }
}
