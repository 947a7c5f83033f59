//! The values of one invocation in XML-like tags: their layout, and who says what type they have.
//! It must never drop a blank that is data.

use alloc::collections::BTreeSet;
use alloc::string::String;

use crate::arguments::{Arguments, BadValue};
use crate::call_writer::CallWriter;
use crate::event::{Sink, TagErrorKind};
use crate::json;

/// What the tag before a value says of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing: the schema decides.
    Untyped,
    /// The value is text.
    Text,
    /// The value is JSON.
    Json,
}

/// The values of one invocation while they arrive.
pub(crate) enum Values {
    /// Typed by the tool's schema.
    Typed(Arguments),
    /// Typed by the tags.
    Wired(WiredArguments),
}

impl Values {
    /// Whether a value of this name may come.
    pub(crate) fn may_take(&self, key: &str) -> bool {
        match self {
            Values::Typed(_) => true,
            Values::Wired(wired) => !wired.keys.contains(key),
        }
    }

    /// A value starts.
    pub(crate) fn begin_value(&mut self, key: &str, written: Written, sink: &mut Sink<'_>) {
        match self {
            Values::Typed(arguments) => arguments.begin_value(key, sink),
            Values::Wired(wired) => wired.begin_value(key, written, sink),
        }
    }

    /// Text that certainly belongs to the current value.
    pub(crate) fn text(&mut self, text: &str, sink: &mut Sink<'_>) {
        match self {
            Values::Typed(arguments) => arguments.value_text(text, sink),
            Values::Wired(wired) => wired.text(text, sink),
        }
    }

    /// The current value is complete: `raw` is all of its text, which starts at `offset`.
    pub(crate) fn end_value(
        &mut self,
        key: &str,
        raw: &str,
        offset: usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), BadValue> {
        match self {
            Values::Typed(arguments) => arguments.end_value(key, raw, offset, sink),
            Values::Wired(wired) => wired.end_value(raw, offset, sink),
        }
    }

    /// All values are there.
    pub(crate) fn close(&mut self, sink: &mut Sink<'_>) -> Result<(), BadValue> {
        match self {
            Values::Typed(arguments) => arguments.close(sink),
            Values::Wired(wired) => {
                let end = if wired.keys.is_empty() { "{}" } else { "}" };
                wired.writer.write(end, sink);
                Ok(())
            }
        }
    }

    /// The call is whole.
    pub(crate) fn end(&mut self, sink: &mut Sink<'_>) {
        match self {
            Values::Typed(arguments) => arguments.end(sink),
            Values::Wired(wired) => wired.writer.end(sink),
        }
    }
}

/// Arguments whose tags say whether they are text or JSON.
pub(crate) struct WiredArguments {
    writer: CallWriter,
    keys: BTreeSet<String>,
    /// What the current value is.
    written: Written,
}

impl WiredArguments {
    pub(crate) fn new(writer: CallWriter) -> WiredArguments {
        WiredArguments {
            writer,
            keys: BTreeSet::new(),
            written: Written::Text,
        }
    }

    fn begin_value(&mut self, key: &str, written: Written, sink: &mut Sink<'_>) {
        let mut text = String::from(if self.keys.is_empty() { "{" } else { "," });
        json::write_string(key, &mut text);
        text.push_str(if written == Written::Json { ":" } else { ":\"" });
        self.writer.write(&text, sink);
        self.keys.insert(key.into());
        self.written = written;
    }

    fn text(&mut self, text: &str, sink: &mut Sink<'_>) {
        if self.written != Written::Json {
            let mut escaped = String::new();
            json::write_escaped(text, &mut escaped);
            self.writer.write(&escaped, sink);
        }
    }

    fn end_value(&mut self, raw: &str, offset: usize, sink: &mut Sink<'_>) -> Result<(), BadValue> {
        if self.written != Written::Json {
            self.writer.write("\"", sink);
            return Ok(());
        }
        match json::parse(raw, json::DEPTH_MAX) {
            Ok(_) => {
                self.writer.write(json::trim_blanks(raw), sink);
                Ok(())
            }
            Err(error) => Err(BadValue {
                kind: TagErrorKind::MalformedJson,
                offset: offset + error.offset,
                expected: error.expected.into(),
            }),
        }
    }
}

/// The layout around a value's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// None: every blank is data.
    Flush,
    /// One line feed at either end is layout, where it is there.
    OneLineFeed,
}

impl Layout {
    /// The value without its layout, and how many bytes of layout come before it.
    pub(crate) fn strip(self, raw: &str) -> (&str, usize) {
        if self == Layout::Flush {
            return (raw, 0);
        }
        let inner = raw.strip_prefix('\n').unwrap_or(raw);
        let before = raw.len() - inner.len();
        (inner.strip_suffix('\n').unwrap_or(inner), before)
    }
}

/// Takes the layout off a value that arrives in pieces.
pub(crate) struct Stripper {
    layout: Layout,
    at_start: bool,
    /// A line feed that is data if more comes, and layout if not.
    held: bool,
}

impl Stripper {
    pub(crate) fn new(layout: Layout) -> Stripper {
        Stripper {
            layout,
            at_start: true,
            held: false,
        }
    }

    /// Hands on what is certainly data.
    pub(crate) fn push(&mut self, text: &str, mut receive: impl FnMut(&str)) {
        if self.layout == Layout::Flush || text.is_empty() {
            return receive(text);
        }
        let text = match text.strip_prefix('\n') {
            Some(rest) if core::mem::take(&mut self.at_start) => rest,
            _ => text,
        };
        self.at_start = false;
        if text.is_empty() {
            return;
        }
        if core::mem::take(&mut self.held) {
            receive("\n");
        }
        match text.strip_suffix('\n') {
            Some(inner) => {
                self.held = true;
                receive(inner);
            }
            None => receive(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_stripped_as_the_whole_is(pieces in prop::collection::vec("[a\n]{0,3}", 0..6)) {
            let raw = pieces.concat();
            for layout in [Layout::Flush, Layout::OneLineFeed] {
                let mut stripper = Stripper::new(layout);
                let mut got = String::new();
                for piece in &pieces {
                    stripper.push(piece, |text| got.push_str(text));
                }
                prop_assert_eq!(got.as_str(), layout.strip(&raw).0, "{:?}", raw);
            }
        }
    }
}
