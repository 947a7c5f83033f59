//! The arguments of a call that stand in its markup as a JSON value.
//! It must never pass on text that is no part of an object.

use crate::call_writer::CallWriter;
use crate::event::Sink;
use crate::json::{self, is_blank};
use crate::json_scanner::{JsonScanner, Scanned};
use crate::markup::Markup;

/// A JSON value in the markup while it is read. Numbers are places in the markup.
pub(crate) struct JsonArguments {
    scanner: JsonScanner,
    /// Where the value starts, once it does.
    start: Option<usize>,
    is_object: bool,
    end: Option<usize>,
    /// How far the value has been passed on.
    sent: usize,
}

impl JsonArguments {
    pub(crate) fn new() -> JsonArguments {
        JsonArguments {
            scanner: JsonScanner::new(json::DEPTH_MAX),
            start: None,
            is_object: false,
            end: None,
            sent: 0,
        }
    }

    /// Takes the next character, which stands at `at`; the error says what was expected there.
    pub(crate) fn take(&mut self, c: char, at: usize) -> Result<Scanned, &'static str> {
        let scanned = self.scanner.take(c)?;
        if self.start.is_none() && !is_blank(c) {
            self.start = Some(at);
            self.sent = at;
            self.is_object = c == '{';
        }
        match scanned {
            Scanned::Inside => {}
            Scanned::Last => self.end = Some(at + c.len_utf8()),
            Scanned::After => self.end = Some(at),
        }
        Ok(scanned)
    }

    /// Where the value starts.
    pub(crate) fn start(&self) -> usize {
        self.start.unwrap_or_default()
    }

    pub(crate) fn is_object(&self) -> bool {
        self.is_object
    }

    /// Whether nothing of the value has come yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.start.is_none()
    }

    /// The text of the value so far.
    pub(crate) fn text<'a>(&self, markup: &'a Markup) -> &'a str {
        let end = self.end.unwrap_or(markup.len());
        markup.get(self.start.unwrap_or(end)..end)
    }

    /// Passes on what has come since the last time, if it is an object's.
    pub(crate) fn pass(&mut self, markup: &Markup, writer: &mut CallWriter, sink: &mut Sink<'_>) {
        let end = self.end.unwrap_or(markup.len());
        if self.is_object && self.sent < end {
            writer.write(markup.get(self.sent..end), sink);
            self.sent = end;
        }
    }
}
