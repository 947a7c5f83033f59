//! What each token looks like in text. It must never know how text becomes tokens.

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
}

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
        }
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
}
