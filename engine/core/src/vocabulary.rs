//! What each token looks like in text. It must never know how text becomes tokens.

use alloc::{boxed::Box, vec::Vec};
use lockstep_step::TokenId;

/// The bytes of each token, and which tokens are control tokens.
///
/// A *special* token is one that never appears as text: where it is out of place it is dropped. The tags
/// of reasoning and of calls are not special here; they go to the tag parser as their text.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    bytes: Vec<Box<[u8]>>,
    special: Vec<bool>,
}

impl Vocabulary {
    /// A vocabulary of these tokens. Tokens that `special` does not reach are not special.
    pub fn new(token_bytes: Vec<Box<[u8]>>, mut special: Vec<bool>) -> Vocabulary {
        special.resize(token_bytes.len(), false);
        Vocabulary {
            bytes: token_bytes,
            special,
        }
    }

    /// The bytes a token stands for; empty for an id past the end, which only a padded model can draw.
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        self.bytes
            .get(token.0 as usize)
            .map_or(&[], |bytes| bytes.as_ref())
    }

    /// Whether a token never appears as text. So it is with an id past the end.
    pub fn is_special(&self, token: TokenId) -> bool {
        self.special.get(token.0 as usize).copied().unwrap_or(true)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
