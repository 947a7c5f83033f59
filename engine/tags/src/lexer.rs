//! Cuts a stream of text into tags and the text between them.
//! It must never hold back more than the longest tag, nor lose a byte.

use alloc::string::String;
use alloc::vec::Vec;
use lockstep_step::planted;

/// A piece of output text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lexeme<'a> {
    /// Text without a tag in it; where one text ends and the next starts says nothing.
    Text(&'a str),
    /// One of the lexer's tags.
    Tag(&'static str),
}

impl<'a> Lexeme<'a> {
    /// The text as the model wrote it.
    pub(crate) fn as_str(self) -> &'a str {
        match self {
            Lexeme::Text(text) => text,
            Lexeme::Tag(tag) => tag,
        }
    }
}

/// Finds tags, also across the borders of pushed pieces.
pub(crate) struct Lexer {
    /// No tag is a prefix of another, and each starts with an ASCII character.
    tags: Vec<&'static str>,
    /// A proper prefix of some tag: what the next push may turn into that tag.
    held: String,
}

impl Lexer {
    pub(crate) fn new(tags: Vec<&'static str>) -> Self {
        Lexer {
            tags,
            held: String::new(),
        }
    }

    /// Takes more text and hands on what has become certain. An error of the receiver ends it.
    pub(crate) fn push<E>(
        &mut self,
        text: &str,
        mut receive: impl FnMut(Lexeme<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut joined = core::mem::take(&mut self.held);
        let text = if joined.is_empty() {
            text
        } else {
            joined.push_str(text);
            &joined
        };
        let mut start = 0; // text[start..pos] is certainly text, not yet handed on
        let mut pos = 0;
        while let Some(found) = self.next_candidate(&text[pos..]) {
            pos += found;
            let rest = &text[pos..];
            if let Some(&tag) = self.tags.iter().find(|tag| rest.starts_with(**tag)) {
                if start < pos {
                    receive(Lexeme::Text(&text[start..pos]))?;
                }
                receive(Lexeme::Tag(tag))?;
                pos += tag.len();
                start = pos;
            // Planted: youssofal/MTPLX#149.
            } else if planted!(HeldLessThanATag) && rest.len() > 4 {
                pos += 1;
            } else if self.tags.iter().any(|tag| tag.starts_with(rest)) {
                self.held.push_str(rest);
                if start < pos {
                    receive(Lexeme::Text(&text[start..pos]))?;
                }
                return Ok(());
            } else {
                pos += 1;
            }
        }
        if start < text.len() {
            receive(Lexeme::Text(&text[start..]))?;
        }
        Ok(())
    }

    /// The held prefix of a tag, which the end of the output has made plain text.
    pub(crate) fn take_held(&mut self) -> String {
        core::mem::take(&mut self.held)
    }

    fn next_candidate(&self, text: &str) -> Option<usize> {
        text.bytes()
            .position(|byte| self.tags.iter().any(|tag| tag.as_bytes()[0] == byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    extern crate std;

    fn cut(pieces: &[&str]) -> (Vec<String>, String) {
        let mut lexer = Lexer::new(vec!["<ab>", "<a|x|>", "[e~["]);
        let mut out: Vec<String> = Vec::new();
        let mut after_text = false;
        for piece in pieces {
            let done: Result<(), ()> = lexer.push(piece, |lexeme| {
                match (lexeme, out.last_mut()) {
                    (Lexeme::Text(text), Some(last)) if after_text => last.push_str(text),
                    _ => out.push(lexeme.as_str().into()),
                }
                after_text = matches!(lexeme, Lexeme::Text(_));
                Ok(())
            });
            assert_eq!(done, Ok(()));
        }
        (out, lexer.take_held())
    }

    #[test]
    fn tags_are_found_in_any_cut() {
        let text = "x<<ab>é<a<a|x|><a|[e~[e~[[e~[<a";
        let whole = cut(&[text]);
        assert_eq!(
            whole.0,
            ["x<", "<ab>", "é<a", "<a|x|>", "<a|", "[e~[", "e~[", "[e~["]
        );
        assert_eq!(whole.1, "<a");
        for (i, _) in text.char_indices() {
            assert_eq!(cut(&[&text[..i], &text[i..]]), whole, "cut at byte {i}");
        }
        let mut buffer = [[0; 4]; 64];
        let chars: Vec<&str> = text
            .chars()
            .zip(&mut buffer)
            .map(|(c, b)| &*c.encode_utf8(b))
            .collect();
        assert_eq!(cut(&chars), whole);
    }

    #[test]
    fn without_tags_everything_is_text() {
        let mut lexer = Lexer::new(vec![]);
        let done: Result<(), ()> = lexer.push("<tool_call>", |lexeme| {
            assert_eq!(lexeme, Lexeme::Text("<tool_call>"));
            Ok(())
        });
        assert!(done.is_ok() && lexer.take_held().is_empty());
    }
}
