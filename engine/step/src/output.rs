//! What one step answers: draws and digests, or the error of a sequence.

use crate::{Digest, PlanError, Pos, SeqId, StepId, TokenId};
use alloc::{string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The answer to a [`StepPlan`](crate::StepPlan).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepOutput {
    /// The step that this answers.
    pub step: StepId,
    /// One entry per sequence of the plan, in the same order.
    pub seqs: Vec<SeqOutput>,
}

/// One sequence's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeqOutput {
    /// The sequence.
    pub seq: SeqId,
    /// The draws of the scored positions, in the same order; or what was wrong with this sequence alone.
    /// Where anything is scored there is at least one. Draws may end after the first that differs from
    /// the draft in its place, since nothing later matters, and before a later position that failed: if it
    /// matters, it is the first position of the sequence's next step.
    pub draws: Result<Vec<Draw>, SeqError>,
}

/// The token drawn at a scored position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draw {
    /// The token.
    pub token: TokenId,
    /// Digest of the raw logits that it was drawn from.
    pub digest: Digest,
    /// Where the request asked for them.
    pub logprobs: Option<Logprobs>,
}

/// Log-probabilities under the model's own distribution, before any processing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logprobs {
    /// Of the drawn token.
    pub drawn: f32,
    /// Of the most likely tokens, descending, ties in ascending order of id.
    pub top: Vec<(TokenId, f32)>,
}

/// An error that concerns one sequence: its stream ends with it, and no other sequence notices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeqError {
    /// A NaN or an infinity appeared.
    NotFinite {
        /// The operation that met it.
        op: String,
        /// The layer, where the operation belongs to one.
        layer: Option<u32>,
        /// The position.
        pos: Pos,
    },
    /// The mask, or the mask together with the bias, allows no token.
    NothingAllowed {
        /// The position that had to be drawn.
        pos: Pos,
    },
    /// The sequence's part of the plan breaks a rule.
    Refused(PlanError),
}

impl fmt::Display for SeqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SeqError::NotFinite {
                op,
                layer: Some(layer),
                pos,
            } => {
                write!(
                    f,
                    "not a finite number in {op} of layer {layer} at position {pos}"
                )
            }
            SeqError::NotFinite {
                op,
                layer: None,
                pos,
            } => {
                write!(f, "not a finite number in {op} at position {pos}")
            }
            SeqError::NothingAllowed { pos } => {
                write!(f, "no token is allowed at position {pos}")
            }
            SeqError::Refused(error) => write!(f, "{error}"),
        }
    }
}
