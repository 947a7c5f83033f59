//! The waist of the engine: one step as a value. Everything above decides *what* to compute and writes a
//! [`StepPlan`]; everything below computes it and answers with a [`StepOutput`].
//!
//! This crate is plain data and checks. It must never know a request, a scheduler, a kernel, a clock or a
//! file; `no_std` keeps most of these out by construction.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod backend;
mod check;
mod ids;
mod layout;
mod ledger;
mod mask;
mod ops;
mod output;
mod plan;
pub mod planted;
mod propose;
mod sampling;

pub use backend::{Backend, BackendError, BackendLimits, Matcher, MatcherError};
pub use check::{PlanChecker, PlanError, PlanRule, check_plan};
pub use ids::{BlockId, Digest, MaskRow, Pos, RowId, SeqId, StepId, TokenId};
pub use layout::{LayoutShape, NO_ID, StepLayout, batch_size};
pub use ledger::Ledger;
pub use mask::{Bitmask, MaskSet};
pub use ops::OpDigest;
pub use output::{Draw, Logprobs, SeqError, SeqOutput, StepOutput};
pub use plan::{BLOCK_LEN, QueryToken, RowPlan, RowWrite, ScoredPosition, SeqPlan, StepPlan};
pub use propose::{
    ModelDrafter, Proposal, ProposalPlan, SeqProposalPlan, admit_proposals, check_proposals,
};
pub use sampling::{SamplingParams, TokenCount};
