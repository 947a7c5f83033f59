//! Bytes to whole characters. What comes out, all together, is what a lossy conversion of all bytes at
//! once would give; how the bytes were cut into tokens must never show.

use alloc::{string::String, vec::Vec};

/// What stands for bytes that are no character.
const REPLACEMENT: &str = "\u{FFFD}";

/// Holds back the bytes of an unfinished character, at most three.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detokenizer {
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Whether nothing is held back. Then a token of whole characters is its own text, and needs no push.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes the bytes of a token and appends the characters that are certain now.
    pub(crate) fn push(&mut self, bytes: &[u8], text: &mut String) {
        #[cfg(planted)]
        let was_inside = core::str::from_utf8(&self.pending).is_err();
        self.pending.extend_from_slice(bytes);
        let mut rest = &self.pending[..];
        loop {
            match core::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(core::str::from_utf8(valid).unwrap_or(""));
                    rest = after;
                    // Without a length the bytes may still become a character.
                    let Some(num_bad) = error.error_len() else {
                        break;
                    };
                    text.push_str(REPLACEMENT);
                    rest = &rest[num_bad..];
                }
            }
        }
        let num_done = self.pending.len() - rest.len();
        // Planted: sgl-project/sglang#31598.
        #[cfg(planted)]
        let num_done = match text.chars().next_back() {
            Some(last) if lockstep_step::planted!(SentOffsetRetreats) && was_inside => {
                num_done.saturating_sub(if last.is_ascii() { 0 } else { last.len_utf8() })
            }
            _ => num_done,
        };
        self.pending.drain(..num_done);
    }

    /// No more bytes come: an unfinished character becomes one replacement character.
    pub(crate) fn finish(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            text.push_str(REPLACEMENT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn detokenize(pieces: &[&[u8]]) -> String {
        let (mut detokenizer, mut text) = (Detokenizer::default(), String::new());
        for piece in pieces {
            match core::str::from_utf8(piece) {
                Ok(whole) if detokenizer.is_idle() => text.push_str(whole),
                _ => detokenizer.push(piece, &mut text),
            }
        }
        detokenizer.finish(&mut text);
        text
    }

    #[test]
    fn half_a_character_waits_for_its_other_half() {
        let (mut detokenizer, mut text) = (Detokenizer::default(), String::new());
        let bytes = "é€😀".as_bytes();
        let mut seen = vec![];
        for byte in bytes {
            detokenizer.push(&[*byte], &mut text);
            seen.push(text.chars().count());
        }
        assert_eq!(seen, [0, 1, 1, 1, 2, 2, 2, 2, 3]);
    }

    #[test]
    fn an_unfinished_character_at_the_end_is_one_replacement() {
        assert_eq!(detokenize(&[b"a\xf0\x9f", b"\x98"]), "a\u{FFFD}");
    }

    proptest! {
        #[test]
        fn cuts_never_show(
            bytes in prop::collection::vec(
                prop_oneof![Just(0xf0u8), Just(0x9f), Just(0x98), Just(0x80), Just(0xe2), Just(0x82),
                    Just(0xed), Just(0xa0), Just(0xc3), Just(0xff), Just(b'a'), any::<u8>()], 0..24),
            cuts in prop::collection::vec(0usize..25, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let whole = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(detokenize(&pieces), whole.into_owned());
        }
    }
}
