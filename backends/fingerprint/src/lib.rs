//! A model made of hashes, without weights, for tests and simulation.
//!
//! A KV slot holds a hash of (token, position), a state row a rolling hash of the prefix, and logits are
//! derived from both through the same block tables and rows as a real model's. One stale row, one swapped
//! block, one missed rollback, and every later token differs. It must never take a shortcut around the ids
//! of the plan, except for [`Script`]s, which are there to make it say something.

mod model;
mod script;

use lockstep_numerics::sampler::Sampler;
use lockstep_sampling::sample_seq;
use lockstep_step::{
    Backend, BackendError, BackendLimits, MaskSet, QueryToken, SeqId, SeqOutput, SeqPlan, StepId,
    StepOutput, StepPlan, TokenId, check_plan,
};
use model::Model;
pub use script::Script;
use script::Scripts;
use std::collections::BTreeMap;

/// What the model is like.
#[derive(Clone, Debug)]
pub struct FingerprintConfig {
    /// What it can hold. With `num_rows = 0` it has no recurrent state.
    pub limits: BackendLimits,
    /// Another seed is another model.
    pub seed: u64,
    /// Added to the logits of tokens, each in the vocabulary; the hashes alone give -4 to 4. Raise the
    /// end tokens to get outputs of reasonable length.
    pub bias: Vec<(TokenId, f32)>,
    /// What it says instead, by prompt; the first that fits counts.
    pub scripts: Vec<Script>,
    /// A token after which all logits of its sequence are NaN.
    pub poison: Option<TokenId>,
    /// A step whose forward pass fails.
    pub failing_step: Option<StepId>,
}

impl FingerprintConfig {
    /// A plain model within these limits.
    pub fn new(limits: BackendLimits) -> FingerprintConfig {
        FingerprintConfig {
            limits,
            seed: 0,
            bias: Vec::new(),
            scripts: Vec::new(),
            poison: None,
            failing_step: None,
        }
    }
}

/// The backend.
pub struct Fingerprint {
    config: FingerprintConfig,
    model: Model,
    scripts: Scripts,
    sampler: Sampler,
    /// Of the last step, by sequence: what a later plan's `Drawn` tokens refer to.
    drawn: BTreeMap<SeqId, (StepId, Vec<TokenId>)>,
}

/// A step between its phases.
pub struct Scored {
    plan: StepPlan,
    seqs: Vec<ScoredSeq>,
}

struct ScoredSeq {
    query: Vec<TokenId>,
    // (scored positions, vocab_size)
    logits: Vec<Vec<f32>>,
}

impl Fingerprint {
    /// A model that has computed nothing.
    pub fn new(config: FingerprintConfig) -> Fingerprint {
        Fingerprint {
            model: Model::new(config.limits, config.seed, config.poison),
            scripts: Scripts::new(config.scripts.clone()),
            sampler: Sampler::new(),
            drawn: BTreeMap::new(),
            config,
        }
    }

    fn resolve(&self, seq: &SeqPlan) -> Result<Vec<TokenId>, BackendError> {
        let resolve_one = |token: &QueryToken| match *token {
            QueryToken::Known(token) => Ok(token),
            QueryToken::Drawn { step, scored_idx } => {
                let drawn = self.drawn.get(&seq.seq).filter(|drawn| drawn.0 == step);
                let token = drawn.and_then(|drawn| drawn.1.get(scored_idx as usize));
                token.copied().ok_or_else(|| {
                    BackendError::Device(format!(
                        "{:?} refers to draw {scored_idx} of step {step}, which is not known",
                        seq.seq
                    ))
                })
            }
        };
        seq.query.iter().map(resolve_one).collect()
    }

    fn logits(&self, context: u64) -> Vec<f32> {
        let mut logits = self.model.logits(context);
        for &(token, value) in &self.config.bias {
            if let Some(logit) = logits.get_mut(token.0 as usize) {
                *logit += value;
            }
        }
        logits
    }
}

impl Backend for Fingerprint {
    type Forward = Scored;

    fn limits(&self) -> BackendLimits {
        self.config.limits
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Scored, BackendError> {
        check_plan(plan, &self.config.limits).map_err(BackendError::Refused)?;
        if self.config.failing_step == Some(plan.step) {
            return Err(BackendError::Device(format!("step {} fails", plan.step)));
        }
        let mut seqs = Vec::with_capacity(plan.seqs.len());
        for seq in &plan.seqs {
            let query = self.resolve(seq)?;
            let contexts = self.model.compute(seq, &query);
            self.scripts.read(seq, &query);
            let mut logits = Vec::with_capacity(contexts.len());
            for (scored, context) in seq.scored.iter().zip(contexts) {
                let mut row = self.logits(context);
                self.scripts.apply(seq, scored.query_idx, &mut row);
                logits.push(row);
            }
            seqs.push(ScoredSeq { query, logits });
        }
        Ok(Scored {
            plan: plan.clone(),
            seqs,
        })
    }

    fn sample(&mut self, forward: Scored, masks: &MaskSet) -> Result<StepOutput, BackendError> {
        self.drawn.clear();
        let mut seqs = Vec::with_capacity(forward.seqs.len());
        for (seq, scored) in forward.plan.seqs.iter().zip(&forward.seqs) {
            let logits_of = |idx: usize| Ok(&scored.logits[idx][..]);
            let draws = sample_seq(&mut self.sampler, seq, &scored.query, logits_of, masks);
            if let Ok(draws) = &draws {
                let tokens = draws.iter().map(|draw| draw.token).collect();
                self.drawn.insert(seq.seq, (forward.plan.step, tokens));
            }
            seqs.push(SeqOutput {
                seq: seq.seq,
                draws,
            });
        }
        Ok(StepOutput {
            step: forward.plan.step,
            seqs,
        })
    }
}

#[cfg(test)]
mod tests;
