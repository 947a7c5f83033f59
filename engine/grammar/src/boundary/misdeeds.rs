//! What planted faults do wrongly with masks and tokens. It must never be in a build that serves anybody.

use super::Boundary;
use crate::place::Place;
use lockstep_step::{Bitmask, TokenId, planted};

impl Boundary {
    /// Allows too much or too little.
    pub(super) fn misfill(&self, mask: &mut Bitmask) {
        // Planted: mlc-ai/xgrammar#694.
        if planted!(PaddingUnmasked) {
            let padding = self.program.vocabulary.num_tokens()..mask.vocab_size();
            padding.for_each(|id| mask.allow(TokenId(id)));
        }
        // Planted: guidance-ai/guidance#1352.
        if planted!(OnlyCanonicalTokens)
            && let Some(&token) = self.forced_tokens().first()
        {
            mask.clear();
            mask.allow(token);
        }
    }

    /// A token that is refused leaves its beginning behind.
    pub(super) fn take_beginning(&mut self, token: TokenId) {
        // Planted: mlc-ai/xgrammar#164.
        let holds = matches!(self.place, Place::Call { .. } | Place::Constrained { .. });
        let vocabulary = self.program.vocabulary.clone();
        if let Some(session) = self.sessions.last_mut()
            && planted!(RefusedBeginningStays)
            && holds
        {
            session.take_beginning(token, &vocabulary);
        }
    }
}
