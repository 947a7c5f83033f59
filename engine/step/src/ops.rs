//! What the operations of a step computed, as digests: what tells two runs of a model apart operation by operation.
//! A digest must never depend on batch mates, chunks, threads or the order in which anything was computed.

use crate::{Digest, Pos, SeqId};
use core::fmt;

/// What one operation computed for one query token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpDigest {
    /// The sequence.
    pub seq: SeqId,
    /// The position of the token.
    pub pos: Pos,
    /// The layer, where the operation belongs to one.
    pub layer: Option<u32>,
    /// Its name; in one layer no two have the same.
    pub op: &'static str,
    /// Of its results for this token.
    pub digest: Digest,
}

impl fmt::Display for OpDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layer {layer}: {}", self.op),
            None => f.write_str(self.op),
        }
    }
}
