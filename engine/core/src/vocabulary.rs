//! What each token looks like in text, and which tokens a model refuses. It must never know how text becomes tokens.

use alloc::{boxed::Box, string::String, vec::Vec};
use lockstep_step::TokenId;

/// The bytes of each token, and which tokens are control tokens.
///
/// A *special* token is one that never appears as text: where it is out of place it is dropped. The tags
/// of reasoning and of calls are not special here; they go to the tag parser as their text.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// By token. What tokens look like lies one after another, so that little memory is read for each.
    words: Vec<Word>,
    /// Of tokens that are whole characters.
    text: String,
    /// Of the others.
    pieces: Vec<u8>,
    /// Tokens that no prompt may have, ascending.
    refused_in_prompts: Vec<TokenId>,
    /// Tokens that are never drawn, ascending.
    refused_in_output: Vec<TokenId>,
}

/// Added to the logit of a token that is refused: next to any other token its weight is exactly 0.
const REFUSED_BIAS: f32 = -1e9;

/// Where a token's bytes are, in 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Word {
    start: u32,
    /// Four times the length, and two bits.
    len_and_kind: u32,
}

impl Word {
    const IS_TEXT: u32 = 1;
    const IS_SPECIAL: u32 = 2;

    fn is(self, kind: u32) -> bool {
        self.len_and_kind & kind != 0
    }

    fn range(self) -> core::ops::Range<usize> {
        let start = self.start as usize;
        start..start + (self.len_and_kind >> 2) as usize
    }
}

impl Vocabulary {
    /// A vocabulary of these tokens. Tokens that `special` does not reach are not special.
    ///
    /// # Panics
    /// If all together have a gibibyte.
    pub fn new(token_bytes: Vec<Box<[u8]>>, special: Vec<bool>) -> Vocabulary {
        let (mut text, mut pieces) = (String::new(), Vec::new());
        let mut words = Vec::with_capacity(token_bytes.len());
        for (token, bytes) in token_bytes.iter().enumerate() {
            let whole = core::str::from_utf8(bytes).ok();
            let start = match whole {
                Some(_) => text.len(),
                None => pieces.len(),
            };
            match whole {
                Some(whole) => text.push_str(whole),
                None => pieces.extend_from_slice(bytes),
            }
            assert!(
                start + bytes.len() < 1 << 30,
                "no vocabulary has a gibibyte"
            );
            let is_special = special.get(token).copied().unwrap_or(false);
            let kind = Word::IS_TEXT * u32::from(whole.is_some())
                + Word::IS_SPECIAL * u32::from(is_special);
            words.push(Word {
                start: start as u32,
                len_and_kind: (bytes.len() as u32) << 2 | kind,
            });
        }
        Vocabulary {
            words,
            text,
            pieces,
            refused_in_prompts: Vec::new(),
            refused_in_output: Vec::new(),
        }
    }

    /// The same vocabulary with tokens that no prompt may have, and tokens that are never drawn.
    pub fn refusing(self, mut in_prompts: Vec<TokenId>, mut in_output: Vec<TokenId>) -> Vocabulary {
        for tokens in [&mut in_prompts, &mut in_output] {
            tokens.sort_unstable();
            tokens.dedup();
        }
        Vocabulary {
            refused_in_prompts: in_prompts,
            refused_in_output: in_output,
            ..self
        }
    }

    /// The index of the first token of a prompt that is refused there.
    pub fn refused_in_prompt(&self, prompt: &[TokenId]) -> Option<usize> {
        let is_refused = |token: &TokenId| self.refused_in_prompts.binary_search(token).is_ok();
        // Most models refuse nothing, and prompts are long.
        match self.refused_in_prompts.is_empty() {
            true => None,
            false => prompt.iter().position(is_refused),
        }
    }

    /// A request's bias, in ascending order of token, with that of the tokens which are never drawn.
    pub(crate) fn with_refused(&self, bias: Vec<(TokenId, f32)>) -> Vec<(TokenId, f32)> {
        if self.refused_in_output.is_empty() {
            return bias;
        }
        let is_refused = |token: TokenId| self.refused_in_output.binary_search(&token).is_ok();
        let own = bias.into_iter().filter(|(token, _)| !is_refused(*token));
        let refused = self.refused_in_output.iter();
        let mut all: Vec<(TokenId, f32)> = own
            .chain(refused.map(|token| (*token, REFUSED_BIAS)))
            .collect();
        all.sort_unstable_by_key(|(token, _)| *token);
        all
    }

    /// The bytes a token stands for; empty for an id past the end, which only a padded model can draw.
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        match self.words.get(token.0 as usize) {
            Some(word) if word.is(Word::IS_TEXT) => &self.text.as_bytes()[word.range()],
            Some(word) => &self.pieces[word.range()],
            None => &[],
        }
    }

    /// The same as text, where it is whole characters.
    pub fn text(&self, token: TokenId) -> Option<&str> {
        match self.words.get(token.0 as usize) {
            Some(word) if word.is(Word::IS_TEXT) => Some(&self.text[word.range()]),
            Some(_) => None,
            None => Some(""),
        }
    }

    /// Whether a token never appears as text. So it is with an id past the end.
    pub fn is_special(&self, token: TokenId) -> bool {
        let word = self.words.get(token.0 as usize);
        word.is_none_or(|word| word.is(Word::IS_SPECIAL))
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn each_token_is_what_it_was_made_of() {
        let tokens: [&[u8]; 6] = [
            b"",
            b"one",
            b"\xe2\x82",
            "\u{20ac}".as_bytes(),
            b"\xff",
            b" x",
        ];
        let vocabulary = Vocabulary::new(tokens.map(Box::from).into(), vec![false, true]);
        for (token, bytes) in (0..).map(TokenId).zip(tokens) {
            assert_eq!(vocabulary.bytes(token), bytes);
            assert_eq!(vocabulary.text(token), core::str::from_utf8(bytes).ok());
            assert_eq!(vocabulary.is_special(token), token.0 == 1);
        }
        assert_eq!((vocabulary.len(), vocabulary.is_empty()), (6, false));
        let past = TokenId(6);
        assert_eq!(
            (vocabulary.bytes(past), vocabulary.text(past)),
            (&b""[..], Some(""))
        );
        assert!(vocabulary.is_special(past));
    }

    #[test]
    fn refused_tokens_are_found_and_outweighed() {
        let tokens = [&b"a"[..]; 9].map(Box::from);
        let vocabulary = Vocabulary::new(tokens.into(), Vec::new());
        let ids = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<_>>();
        let bias = vec![(TokenId(1), 2.0), (TokenId(5), 100.0)];
        assert_eq!(vocabulary.refused_in_prompt(&ids(&[0, 8])), None);
        assert_eq!(vocabulary.with_refused(bias.clone()), bias);
        let vocabulary = vocabulary.refusing(ids(&[8, 3]), ids(&[5, 0, 5]));
        assert_eq!(vocabulary.refused_in_prompt(&ids(&[0, 5, 1])), None);
        assert_eq!(vocabulary.refused_in_prompt(&ids(&[0, 3, 8])), Some(1));
        let expected = [
            (TokenId(0), REFUSED_BIAS),
            (TokenId(1), 2.0),
            (TokenId(5), REFUSED_BIAS),
        ];
        assert_eq!(vocabulary.with_refused(bias), expected);
    }
}
