//! Typed ids. There is no arithmetic across kinds: a block can't be used where a row is meant.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A token of the vocabulary.
    TokenId(u32), "t"
);
id!(
    /// One stream of tokens: a request with `n = 2` has two.
    SeqId(u64), "seq"
);
id!(
    /// A block of the KV cache: 64 positions of every attention layer.
    BlockId(u32), "b"
);
id!(
    /// A row of recurrent state: what every linear-attention layer keeps of one sequence at one length.
    RowId(u32), "r"
);
id!(
    /// A row of the step's mask set: the tokens allowed at one scored position.
    MaskRow(u32), "m"
);
id!(
    /// A position of a sequence, from 0.
    Pos(u32), "p"
);
id!(
    /// A step of the engine, counted from 0.
    StepId(u64), "s"
);

/// The order-free 64-bit digest of a row of logits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub u64);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
