//! A model made of hashes, without weights, for tests and simulation.
//!
//! A KV slot holds a hash of (token, position), a state row a rolling hash of the prefix, and logits are
//! derived from both through the same block tables and rows as a real model's. One stale row, one swapped
//! block, one missed rollback, and every later token differs. It must never take a shortcut around the ids
//! of the plan, except for [`Script`]s, which are there to make it say something.

mod draft;
#[cfg(planted)]
mod misdraw;
#[cfg(planted)]
mod mistakes;
mod model;
mod script;

use draft::Drafters;

use lockstep_numerics::sampler::Sampler;
use lockstep_sampling::{DrawnTokens, sample_seq};
use lockstep_step::{
    Backend, BackendError, BackendLimits, LayoutShape, MaskSet, ModelDrafter, PlanError, Proposal,
    ProposalPlan, SeqError, SeqOutput, SeqProposalPlan, StepId, StepLayout, StepOutput, StepPlan,
    TokenId, check_plan, check_proposals,
};
use model::{Model, States};
pub use script::Script;
use script::Scripts;

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
    /// Logits are whole multiples of this, so that some are equal; 0 leaves them as the hashes make them.
    pub grain: f32,
    /// What it says instead, by prompt; the first that fits counts.
    pub scripts: Vec<Script>,
    /// A token after which all logits of its sequence are NaN.
    pub poison: Option<TokenId>,
    /// A step whose forward pass fails.
    pub failing_step: Option<StepId>,
    /// The step from which on the device is gone.
    pub lost_step: Option<StepId>,
    /// Who drafts, each at most once.
    pub drafters: Vec<Drafting>,
    /// Lay every step out in buffers of a few fixed sizes, with padding that is poisoned.
    pub static_buffers: bool,
}

/// A model that drafts, beside the model: it has the same hashes in blocks and rows of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drafting {
    /// Which one.
    pub drafter: ModelDrafter,
    /// How many of a thousand proposed tokens are wrong on purpose, chosen by a hash of what stands before.
    /// With 0 it proposes what an unconstrained sequence draws; whatever else it proposes then comes from a
    /// block or a row that is not what it should be.
    pub wrong_per_mille: u32,
}

impl FingerprintConfig {
    /// A plain model within these limits.
    pub fn new(limits: BackendLimits) -> FingerprintConfig {
        FingerprintConfig {
            limits,
            seed: 0,
            bias: Vec::new(),
            grain: 0.0,
            scripts: Vec::new(),
            poison: None,
            failing_step: None,
            lost_step: None,
            drafters: Vec::new(),
            static_buffers: false,
        }
    }

    fn shape(&self) -> LayoutShape {
        match self.static_buffers {
            false => LayoutShape::Exact,
            true => LayoutShape::Fixed {
                query_tokens_max: self.limits.query_tokens_max,
                seq_len_max: self.limits.seq_len_max,
            },
        }
    }
}

/// The backend.
pub struct Fingerprint {
    config: FingerprintConfig,
    model: Model,
    drafters: Drafters,
    layout: StepLayout,
    scripts: Scripts,
    sampler: Sampler,
    drawn: DrawnTokens,
    #[cfg(planted)]
    misdraw: misdraw::Misdraw,
    #[cfg(planted)]
    mistakes: mistakes::Mistakes,
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
    refused: Option<PlanError>,
}

impl Fingerprint {
    /// A model that has computed nothing.
    pub fn new(config: FingerprintConfig) -> Fingerprint {
        Fingerprint {
            model: Model::new(&config, States::in_rows(&config)),
            drafters: Drafters::new(&config),
            layout: StepLayout::new(config.shape()),
            scripts: Scripts::new(config.scripts.clone()),
            sampler: Sampler::new(),
            drawn: DrawnTokens::default(),
            #[cfg(planted)]
            misdraw: misdraw::Misdraw::default(),
            #[cfg(planted)]
            mistakes: mistakes::Mistakes::new(config.limits.num_rows),
            config,
        }
    }
}

impl Backend for Fingerprint {
    type Forward = Scored;
    type Sampled = StepOutput;

    fn limits(&self) -> BackendLimits {
        self.config.limits
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Scored, BackendError> {
        check_plan(plan, &self.config.limits).map_err(BackendError::Refused)?;
        if self.config.lost_step.is_some_and(|lost| lost <= plan.step) {
            return Err(BackendError::Lost("the device does not answer".into()));
        }
        if self.config.failing_step == Some(plan.step) {
            return Err(BackendError::Device(format!("step {} fails", plan.step)));
        }
        let resolved = plan.seqs.iter().map(|seq| self.drawn.resolve(seq));
        let resolved: Vec<_> = resolved.collect();
        let tokens: Vec<TokenId> = resolved.iter().flat_map(|of| &of.0).copied().collect();
        self.layout.lay_out(&plan.seqs, &tokens);
        #[cfg(planted)]
        {
            self.mistakes.lay_out(plan, &tokens, &mut self.layout);
            self.mistakes.begin(&mut self.model);
        }
        let mut contexts = self.model.compute(&self.layout).into_iter();
        #[cfg(planted)]
        self.mistakes.end(plan, &self.layout, &mut self.model);
        self.drafters.mirror(&self.layout);
        let mut seqs = Vec::with_capacity(plan.seqs.len());
        for (seq, (query, refused)) in plan.seqs.iter().zip(resolved) {
            self.scripts.read(seq, &query);
            let mut logits = Vec::with_capacity(seq.scored.len());
            for (scored, context) in seq.scored.iter().zip(contexts.by_ref()) {
                let mut row = self.model.logits(context);
                self.scripts.apply(seq, scored.query_idx, &mut row);
                logits.push(row);
            }
            seqs.push(ScoredSeq {
                query,
                logits,
                refused,
            });
        }
        Ok(Scored {
            plan: plan.clone(),
            seqs,
        })
    }

    fn draw(&mut self, forward: Scored, masks: &MaskSet) -> Result<StepOutput, BackendError> {
        #[cfg(planted)]
        let (forward, masks) = &self.misdraw.before(forward, masks);
        let mut seqs = Vec::with_capacity(forward.seqs.len());
        for (seq, scored) in forward.plan.seqs.iter().zip(&forward.seqs) {
            let logits_of = |idx: usize| Ok(&scored.logits[idx][..]);
            let draws = match &scored.refused {
                Some(refused) => Err(SeqError::Refused(refused.clone())),
                None => sample_seq(&mut self.sampler, seq, &scored.query, logits_of, masks),
            };
            seqs.push(SeqOutput {
                seq: seq.seq,
                draws,
            });
        }
        #[cfg(planted)]
        misdraw::after(&forward.plan, &mut seqs);
        self.drawn.keep(forward.plan.step, &seqs);
        Ok(StepOutput {
            step: forward.plan.step,
            seqs,
        })
    }

    fn collect(&mut self, sampled: StepOutput) -> Result<StepOutput, BackendError> {
        #[cfg(planted)]
        let sampled = self.mistakes.collect(sampled);
        Ok(sampled)
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.drafters.has(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        check_proposals(plan, &self.config.limits).map_err(BackendError::Refused)?;
        // One request that names a drafter that isn't there takes no drafts from the others.
        let is_there = |ask: &SeqProposalPlan| self.has_drafter(ask.drafter);
        if let Some(ask) = plan.seqs.first()
            && !plan.seqs.iter().any(is_there)
        {
            let message = format!(
                "sequence {} asks {:?}, which is not there",
                ask.seq, ask.drafter
            );
            return Err(BackendError::Device(message));
        }
        let tables = (&self.scripts, &mut self.sampler);
        let seqs = plan.seqs.iter();
        let proposals = seqs.map(|ask| self.drafters.propose(ask, tables.0, tables.1));
        Ok(proposals.collect())
    }
}

#[cfg(test)]
mod tests;
