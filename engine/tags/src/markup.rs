//! The raw text of a call while it is read, and the errors that point into it.
//! It must never grow past its limit, nor drop a byte before the byte is accounted for.

use alloc::string::String;
use core::ops::Range;

use crate::event::{TagError, TagErrorKind};
use crate::schema::ToolSet;

/// Raw text from a call's opener on, or from the end of the call before it in the same section.
pub(crate) struct Markup {
    text: String,
    /// Offset of the text in the output.
    offset: usize,
    bytes_max: usize,
}

impl Markup {
    pub(crate) fn new(text: String, offset: usize, bytes_max: usize) -> Markup {
        Markup {
            text,
            offset,
            bytes_max,
        }
    }

    /// Bytes of markup so far: the place of what comes next.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// How many bytes may still come.
    pub(crate) fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.text.len())
    }

    pub(crate) fn get(&self, range: Range<usize>) -> &str {
        &self.text[range]
    }

    /// Everything from a place on.
    pub(crate) fn since(&self, start: usize) -> &str {
        &self.text[start..]
    }

    /// The offset in the output of a place in the markup.
    pub(crate) fn offset_of(&self, at: usize) -> usize {
        self.offset + at
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Gives up the text: it is accounted for, what follows starts at place 0.
    pub(crate) fn settle(&mut self) -> String {
        self.offset += self.text.len();
        core::mem::take(&mut self.text)
    }

    /// An error at a place in the markup.
    pub(crate) fn error(&self, kind: TagErrorKind, at: usize, expected: String) -> TagError {
        TagError {
            kind,
            offset: self.offset + at,
            expected,
            markup: self.text.clone(),
        }
    }

    /// An error at an offset in the output.
    pub(crate) fn error_at(&self, kind: TagErrorKind, offset: usize, expected: String) -> TagError {
        TagError {
            kind,
            offset,
            expected,
            markup: self.text.clone(),
        }
    }

    /// The name at a place in the markup is that of no offered tool.
    pub(crate) fn unknown_tool(&self, at: usize, tools: &ToolSet) -> TagError {
        let expected = alloc::format!("one of the offered tools: {}", names_shown(tools));
        self.error(TagErrorKind::UnknownTool, at, expected)
    }

    /// The call is longer than it may be.
    pub(crate) fn too_long(&self) -> TagError {
        let expected = alloc::format!("a call of at most {} bytes", self.bytes_max);
        self.error(TagErrorKind::MalformedCall, self.text.len(), expected)
    }

    /// `text` may not stand here.
    pub(crate) fn refuse(&mut self, text: &str, expected: &str) -> TagError {
        let at = self.text.len();
        self.push(text);
        self.error(TagErrorKind::MalformedCall, at, expected.into())
    }

    /// The character of `text` at `at` may not stand here; what precedes it may.
    pub(crate) fn refuse_char(&mut self, text: &str, at: usize, expected: &str) -> TagError {
        let c = text[at..].chars().next().map_or(0, char::len_utf8);
        self.push(&text[..at]);
        self.refuse(&text[at..at + c], expected)
    }
}

/// The offered names, as many as an error message can bear.
fn names_shown(tools: &ToolSet) -> String {
    const SHOWN_MAX: usize = 12;
    let mut text = String::new();
    for (i, name) in tools.names().enumerate() {
        match i {
            SHOWN_MAX => {
                text.push_str(", …");
                break;
            }
            _ => text.push_str(if i == 0 { "" } else { ", " }),
        }
        text.push_str(name);
    }
    text
}
