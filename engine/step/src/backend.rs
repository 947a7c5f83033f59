//! The two traits of the engine: what runs a step, and what says which tokens are allowed.

use crate::{
    Bitmask, MaskSet, ModelDrafter, OpDigest, PlanError, Proposal, ProposalPlan, StepId,
    StepOutput, StepPlan, TokenId,
};
use alloc::{format, string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

/// What a backend can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendLimits {
    /// Width of a row of logits.
    pub vocab_size: u32,
    /// Blocks of the KV cache.
    pub num_blocks: u32,
    /// Rows of recurrent state; 0 if the model has none, and then plans name no rows.
    pub num_rows: u32,
    /// The longest sequence that the model can hold, in tokens.
    pub seq_len_max: u32,
    /// The most query tokens of one step.
    pub query_tokens_max: u32,
}

/// Runs steps. A backend sees ids only: it knows no request, and keeps no tokens.
///
/// A step has three phases. [`forward`](Backend::forward) computes logits of the scored positions; masks can
/// be filled while it runs. [`draw`](Backend::draw) draws from them. [`collect`](Backend::collect) waits for
/// what was drawn; the next step may have been started before that, and refer to it.
pub trait Backend {
    /// A step whose logits are being computed.
    type Forward;
    /// A step whose tokens are being drawn.
    type Sampled;

    /// What this backend can hold.
    fn limits(&self) -> BackendLimits;

    /// Starts a step.
    ///
    /// # Errors
    /// If the plan breaks a rule that only the backend can check, or the device failed.
    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError>;

    /// Applies the masks and draws one token per scored position.
    ///
    /// # Errors
    /// If a mask has the wrong width, or the device failed.
    fn draw(
        &mut self,
        forward: Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError>;

    /// Ends a step: waits for its draws.
    ///
    /// # Errors
    /// If the device failed.
    fn collect(&mut self, sampled: Self::Sampled) -> Result<StepOutput, BackendError>;

    /// [`draw`](Backend::draw) and [`collect`](Backend::collect) in one.
    ///
    /// # Errors
    /// As these.
    fn sample(
        &mut self,
        forward: Self::Forward,
        masks: &MaskSet,
    ) -> Result<StepOutput, BackendError> {
        let sampled = self.draw(forward, masks)?;
        self.collect(sampled)
    }

    /// Whether a step goes on by itself once it was started: then the next one is best planned meanwhile.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Whether such a model is there to be asked for drafts.
    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        let _ = drafter;
        false
    }

    /// Asks a model that drafts. No step is lost where this fails: there are no drafts then.
    ///
    /// # Errors
    /// If none of the drafters that are asked is there, the question breaks a rule, or the device failed.
    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        let names = plan.seqs.iter().map(|seq| seq.drafter);
        Err(BackendError::Device(format!(
            "no model drafts here: {:?}",
            names.collect::<Vec<_>>()
        )))
    }

    /// Asks for digests of what operations compute, from the next step on, or for no more of them. Says whether there
    /// will be any: a backend may have none. No draw differs for it.
    fn watch_ops(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// The digests of a step that was collected, where they were asked for: by sequence, by position, and of each in
    /// the order of the model's operations. They are handed out once, and those of earlier steps are gone then.
    fn take_ops(&mut self, step: StepId) -> Vec<OpDigest> {
        let _ = step;
        Vec::new()
    }
}

/// A failure of a whole step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// The plan breaks a rule; nothing was computed.
    Refused(PlanError),
    /// The device failed, in its own words.
    Device(String),
    /// The device is gone, and all that its blocks and rows held with it: no further step can be run.
    Lost(String),
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::Refused(error) => write!(f, "plan refused: {error}"),
            BackendError::Device(message) => write!(f, "device failed: {message}"),
            BackendError::Lost(message) => write!(f, "device lost: {message}"),
        }
    }
}

impl core::error::Error for BackendError {}

/// A constraint on one sequence, as an automaton over tokens.
///
/// A matcher is walked over drafts and rolled back within a step; `depth` lets the engine assert that it
/// ended where it began. What it answers, failures included, is a function of the tokens it has taken and
/// not rolled back: otherwise a draft could change an output.
pub trait Matcher: Send {
    /// Writes the tokens allowed next.
    ///
    /// # Errors
    /// If the matcher ran out of fuel or is broken: that sequence ends with this error.
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError>;

    /// Takes a token, never one that ends the output.
    ///
    /// # Errors
    /// If the token is not allowed here; the matcher stays where it was.
    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError>;

    /// Takes back the last `num_tokens` tokens.
    ///
    /// # Panics
    /// If fewer were taken.
    fn rollback(&mut self, num_tokens: u32);

    /// Tokens taken and not rolled back.
    fn depth(&self) -> u32;

    /// Whether the output may end here.
    fn can_finish(&self) -> bool;

    /// The constraint as text, where another matcher of the same constraint can be made from it: what is written
    /// down of it in a capture.
    fn source(&self) -> Option<&str> {
        None
    }

    /// At most `num_max` tokens that can be expected next, since the constraint leaves the text no choice:
    /// the canonical tokenisation of a forced string, or its beginning. They are offered as drafts, so
    /// they may be wrong, and may never matter to what is said. The matcher stays where it was. The same
    /// place gives the same tokens.
    fn forced(&mut self, num_max: usize) -> Vec<TokenId> {
        let _ = num_max;
        Vec::new()
    }
}

/// Why a matcher refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatcherError {
    /// The token is not allowed here.
    Rejected(TokenId),
    /// The matcher can't go on.
    Broken(String),
}

impl fmt::Display for MatcherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatcherError::Rejected(token) => write!(f, "token {token} is not allowed here"),
            MatcherError::Broken(message) => write!(f, "grammar failed: {message}"),
        }
    }
}
