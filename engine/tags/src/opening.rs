//! An opener whose meaning only what follows it decides, past blanks.
//! It must never take more than blanks before it has decided.

use alloc::string::String;

use crate::call::Verdict;
use crate::json::is_blank;
use crate::lexer::Lexeme;

/// An opener and the blanks behind it.
pub(crate) struct Lookahead {
    pub(crate) held: String,
    opener: &'static str,
    /// What makes the opener the start of a call.
    starts: fn(Lexeme<'_>) -> bool,
    bytes_max: usize,
}

impl Lookahead {
    pub(crate) fn new(
        opener: &'static str,
        starts: fn(Lexeme<'_>) -> bool,
        bytes_max: usize,
    ) -> Lookahead {
        Lookahead {
            held: opener.into(),
            opener,
            starts,
            bytes_max,
        }
    }

    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>) -> Verdict {
        let text = match lexeme {
            Lexeme::Tag(tag) if tag == self.opener => return Verdict::Stutter,
            Lexeme::Tag(_) if (self.starts)(lexeme) => return Verdict::Call(0),
            Lexeme::Tag(_) => return Verdict::Text(0),
            Lexeme::Text(text) => text,
        };
        let blanks = text.find(|c| !is_blank(c)).unwrap_or(text.len());
        // Blanks are one byte each, so any cut among them is one between characters.
        let room = self.bytes_max.saturating_sub(self.held.len());
        self.held.push_str(&text[..blanks.min(room)]);
        if blanks > room {
            return Verdict::Text(room);
        }
        match &text[blanks..] {
            "" => Verdict::Undecided,
            rest if (self.starts)(Lexeme::Text(rest)) => Verdict::Call(blanks),
            _ => Verdict::Text(blanks),
        }
    }
}
