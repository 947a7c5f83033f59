//! GLM-4.5 to GLM-5.3: `<tool_call>name`, then `<arg_key>` and `<arg_value>` pairs, `</tool_call>`.
//! One grammar reads the newline layout and the compact one. A value has no layout: it must never
//! lose a blank, and a tag inside a value is data unless its position makes it structure.

use alloc::string::String;

use crate::arguments::{Arguments, BadValue};
use crate::call::{ReadCall, Setting, Step, Verdict};
use crate::event::{Sink, TagError, TagErrorKind};
use crate::json::is_blank;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::schema::ToolSet;
use crate::types::Dialect;

pub(crate) const CALL_OPEN: &str = "<tool_call>";
const CALL_CLOSE: &str = "</tool_call>";
const KEY_OPEN: &str = "<arg_key>";
const KEY_CLOSE: &str = "</arg_key>";
const VALUE_OPEN: &str = "<arg_value>";
const VALUE_CLOSE: &str = "</arg_value>";

/// The tags that have meaning when tools are offered.
pub(crate) const CALL_TAGS: [&str; 6] = [
    CALL_OPEN,
    CALL_CLOSE,
    KEY_OPEN,
    KEY_CLOSE,
    VALUE_OPEN,
    VALUE_CLOSE,
];
/// Tokens that end a turn; spelled at the very end of the text they are no text.
pub(crate) const STOPS: [&str; 3] = ["<|observation|>", "<|user|>", "<|endoftext|>"];

/// An opener of which it is not certain yet whether a call follows.
pub(crate) struct Opening {
    /// The text so far: opener, blanks, maybe a name, blanks.
    pub(crate) held: String,
    /// Where in `held` the name starts and, once something ended it, where it ends.
    name_start: Option<usize>,
    name_end: Option<usize>,
    bytes_max: usize,
}

impl Opening {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Opening {
            held: CALL_OPEN.into(),
            name_start: None,
            name_end: None,
            bytes_max,
        }
    }

    /// The name, as far as it has been read.
    pub(crate) fn name(&self) -> Option<&str> {
        let start = self.name_start?;
        Some(&self.held[start..self.name_end.unwrap_or(self.held.len())])
    }

    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>, tools: &ToolSet) -> Verdict {
        let text = match lexeme {
            Lexeme::Text(text) => text,
            Lexeme::Tag(CALL_OPEN) if self.name_start.is_none() => return Verdict::Stutter,
            Lexeme::Tag(CALL_CLOSE | KEY_OPEN | KEY_CLOSE | VALUE_OPEN | VALUE_CLOSE) => {
                return Verdict::Call(0);
            }
            Lexeme::Tag(_) => return self.call_if_declared(tools, 0),
        };
        for (i, c) in text.char_indices() {
            if self.held.len() + c.len_utf8() > self.bytes_max {
                return Verdict::Text(i);
            }
            match (self.name_start, self.name_end) {
                (None, _) if is_blank(c) => {}
                (None, _) if matches!(c, '<' | '>') => return Verdict::Text(i),
                (None, _) => self.name_start = Some(self.held.len()),
                (Some(_), None) if is_blank(c) => {
                    self.name_end = Some(self.held.len());
                    if self.name_is_declared(tools) {
                        return Verdict::Call(i);
                    }
                }
                (Some(_), None) if matches!(c, '<' | '>') => {
                    return self.call_if_declared(tools, i);
                }
                (Some(_), None) => {}
                (Some(_), Some(_)) if is_blank(c) => {}
                (Some(_), Some(_)) => return Verdict::Text(i),
            }
            self.held.push(c);
        }
        Verdict::Undecided
    }

    /// Whether the name read so far, taken as complete, is that of an offered tool.
    pub(crate) fn name_is_declared(&self, tools: &ToolSet) -> bool {
        self.name().is_some_and(|name| tools.contains(name))
    }

    fn call_if_declared(&self, tools: &ToolSet, taken: usize) -> Verdict {
        match self.name_is_declared(tools) {
            true => Verdict::Call(taken),
            false => Verdict::Text(taken),
        }
    }
}

/// Where inside a call the parser stands. Numbers are byte offsets in the call's markup.
enum Place {
    /// The opener was not followed by a name: whatever comes next is wrong.
    NoName,
    /// After the name or after a whole argument.
    Between,
    /// Inside `<arg_key>`, whose text starts here.
    Key { start: usize },
    /// After `</arg_key>`.
    BeforeValue,
    /// Inside `<arg_value>`, whose text starts here.
    Value { start: usize, quoted: Quoted },
    /// After a `</arg_value>` that closes the value only if an argument or the call's end follows.
    Closing { start: usize, end: usize },
}

/// How much of a whole next argument the current value seems to quote.
#[derive(Clone, Copy)]
enum Quoted {
    Nothing,
    /// `<arg_key>` at `tag`, and text after it.
    Key {
        tag: usize,
    },
    /// `<arg_key>` at `tag`, a declared name, `</arg_key>`, blanks.
    Name {
        tag: usize,
    },
}

/// A call whose name is certain.
pub(crate) struct Call {
    markup: Markup,
    place: Place,
    key: String,
    arguments: Arguments,
}

impl Call {
    /// Takes over from an opener that was found to start a call. `offset` is that of the opener.
    pub(crate) fn begin(
        opening: Opening,
        offset: usize,
        setting: &mut Setting<'_, '_>,
    ) -> Result<Call, TagError> {
        let name = opening.name().unwrap_or_default();
        let place = if name.is_empty() {
            Place::NoName
        } else {
            Place::Between
        };
        let name_at = opening.name_start.unwrap_or_default();
        let arguments = Arguments::new(name, Dialect::Json, setting);
        let call = Call {
            markup: Markup::new(opening.held, offset, opening.bytes_max),
            place,
            key: String::new(),
            arguments,
        };
        if matches!(call.place, Place::NoName) {
            return Ok(call);
        }
        if !setting.tools.contains(call.arguments.name()) {
            return Err(call.markup.unknown_tool(name_at, setting.tools));
        }
        call.arguments.begin(setting.sink);
        Ok(call)
    }

    fn take_text(&mut self, text: &str, sink: &mut Sink<'_>) -> Result<(), TagError> {
        // The first character that layout does not allow, in places where only layout may stand.
        let stray = |wrong: fn(char) -> bool| text.find(wrong);
        let not_blank: fn(char) -> bool = |c| !is_blank(c);
        match self.place {
            Place::NoName => return Err(self.markup.refuse(text, "the name of a tool")),
            Place::Between => {
                if let Some(at) = stray(not_blank) {
                    return Err(self
                        .markup
                        .refuse_char(text, at, "`<arg_key>` or `</tool_call>`"));
                }
            }
            Place::BeforeValue => {
                if let Some(at) = stray(not_blank) {
                    return Err(self.markup.refuse_char(text, at, "`<arg_value>`"));
                }
            }
            Place::Key { .. } => {
                if let Some(at) = stray(|c| c == '<') {
                    return Err(self.markup.refuse_char(text, at, "`</arg_key>`"));
                }
            }
            Place::Value { start, quoted } => {
                let blank = stray(not_blank).is_none();
                let quoted = match quoted {
                    Quoted::Name { .. } if !blank => Quoted::Nothing,
                    quoted => quoted,
                };
                self.place = Place::Value { start, quoted };
                self.arguments.value_text(text, sink);
            }
            Place::Closing { start, end } => {
                if stray(not_blank).is_some() {
                    self.reopen_value(start, end, sink);
                    self.arguments.value_text(text, sink);
                }
            }
        }
        self.markup.push(text);
        Ok(())
    }

    fn take_tag(&mut self, tag: &'static str, sink: &mut Sink<'_>) -> Result<bool, TagError> {
        if let Place::Closing { start, end } = self.place {
            if !matches!(tag, KEY_OPEN | CALL_CLOSE) {
                self.reopen_value(start, end, sink);
            } else {
                let raw = self.markup.get(start..end);
                let ended =
                    self.arguments
                        .end_value(&self.key, raw, self.markup.offset_of(start), sink);
                self.place = Place::Between;
                if let Err(bad) = ended {
                    return Err(self.bad_value(bad, tag));
                }
            }
        }
        let at = self.markup.len();
        let after = at + tag.len();
        self.place = match (&self.place, tag) {
            (Place::NoName, _) => return Err(self.markup.refuse(tag, "the name of a tool")),
            (Place::Between, KEY_OPEN) => Place::Key { start: after },
            (Place::Between, CALL_CLOSE) => return self.complete(sink),
            (Place::Between, _) => {
                return Err(self.markup.refuse(tag, "`<arg_key>` or `</tool_call>`"));
            }
            (Place::Key { start }, KEY_CLOSE) => {
                self.key = self.markup.since(*start).trim_matches(is_blank).into();
                Place::BeforeValue
            }
            (Place::Key { .. }, _) => return Err(self.markup.refuse(tag, "`</arg_key>`")),
            (Place::BeforeValue, VALUE_OPEN) => {
                self.arguments.begin_value(&self.key, sink);
                Place::Value {
                    start: after,
                    quoted: Quoted::Nothing,
                }
            }
            (Place::BeforeValue, _) => return Err(self.markup.refuse(tag, "`<arg_value>`")),
            (Place::Value { start, .. }, VALUE_CLOSE) => Place::Closing {
                start: *start,
                end: at,
            },
            (Place::Value { start, quoted }, _) => {
                let (start, quoted) = (*start, self.quoted_after(*quoted, tag)?);
                self.arguments.value_text(tag, sink);
                Place::Value { start, quoted }
            }
            (Place::Closing { .. }, _) => Place::Between, // settled above
        };
        self.markup.push(tag);
        Ok(false)
    }

    /// A closer was data after all: it and the blanks behind it belong to the value.
    fn reopen_value(&mut self, start: usize, end: usize, sink: &mut Sink<'_>) {
        self.place = Place::Value {
            start,
            quoted: Quoted::Nothing,
        };
        self.arguments.value_text(self.markup.since(end), sink);
    }

    /// Follows a tag inside a value. A whole next argument that names a declared parameter is no
    /// data: there the closer of this value was lost.
    fn quoted_after(&mut self, quoted: Quoted, tag: &'static str) -> Result<Quoted, TagError> {
        match (quoted, tag) {
            (_, KEY_OPEN) => Ok(Quoted::Key {
                tag: self.markup.len(),
            }),
            (Quoted::Key { tag }, KEY_CLOSE) => {
                let name = self
                    .markup
                    .since(tag + KEY_OPEN.len())
                    .trim_matches(is_blank);
                let declared = self.arguments.declares(name);
                Ok(if declared {
                    Quoted::Name { tag }
                } else {
                    Quoted::Nothing
                })
            }
            (Quoted::Name { tag: at }, VALUE_OPEN) => {
                self.markup.push(tag);
                let expected = "`</arg_value>` before the next argument".into();
                Err(self.markup.error(TagErrorKind::MalformedCall, at, expected))
            }
            _ => Ok(Quoted::Nothing),
        }
    }

    fn complete(&mut self, sink: &mut Sink<'_>) -> Result<bool, TagError> {
        match self.arguments.close(sink) {
            Ok(()) => {
                self.arguments.end(sink);
                self.markup.push(CALL_CLOSE);
                Ok(true)
            }
            Err(bad) => Err(self.bad_value(bad, CALL_CLOSE)),
        }
    }

    fn bad_value(&mut self, bad: BadValue, tag: &str) -> TagError {
        self.markup.push(tag);
        self.markup
            .error_at(TagErrorKind::BadValue, bad.offset, bad.expected)
    }
}

impl ReadCall for Call {
    fn markup(&mut self) -> &mut Markup {
        &mut self.markup
    }

    fn take(
        &mut self,
        lexeme: Lexeme<'_>,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(usize, Step), TagError> {
        let ended = match lexeme {
            Lexeme::Text(text) => self.take_text(text, setting.sink).map(|()| false)?,
            Lexeme::Tag(tag) => self.take_tag(tag, setting.sink)?,
        };
        let step = if ended { Step::Ended } else { Step::Inside };
        Ok((lexeme.as_str().len(), step))
    }

    fn closer(&self) -> &'static str {
        CALL_CLOSE
    }
}
