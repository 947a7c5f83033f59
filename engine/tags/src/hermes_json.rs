//! Hermes 2 and 3, Qwen2.5, Qwen3: `<tool_call>`, a JSON object with `name` and `arguments`,
//! `</tool_call>`. Where the object ends is found by reading it: no tag inside a string counts.

use alloc::string::String;
use alloc::vec::Vec;

use crate::call::{ReadCall, Setting, Step};
use crate::call_writer::CallWriter;
use crate::event::{Ended, Sink, TagError, TagErrorKind};
use crate::json::{self, Value, is_blank};
use crate::json_arguments::JsonArguments;
use crate::json_scanner::Scanned;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::opening::Lookahead;

pub(crate) const CALL_OPEN: &str = "<tool_call>";
pub(crate) const CALL_CLOSE: &str = "</tool_call>";

/// The tags that have meaning when tools are offered.
pub(crate) const CALL_TAGS: [&str; 2] = [CALL_OPEN, CALL_CLOSE];
/// Tokens that end a turn.
pub(crate) const STOPS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// A `<tool_call>` that starts a call if JSON, or nothing at all, follows.
pub(crate) fn opening(bytes_max: usize) -> Lookahead {
    let starts = |lexeme: Lexeme<'_>| match lexeme {
        Lexeme::Tag(tag) => tag == CALL_CLOSE,
        Lexeme::Text(text) => text.starts_with(['{', '[']),
    };
    Lookahead::new(CALL_OPEN, starts, bytes_max)
}

/// The keys that the object may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Arguments,
    /// Read past, as some models write it.
    Id,
    Type,
}

impl Key {
    fn named(name: &str) -> Option<Key> {
        Some(match name {
            "name" => Key::Name,
            "arguments" => Key::Arguments,
            "id" => Key::Id,
            "type" => Key::Type,
            _ => return None,
        })
    }
}

/// Where inside a call the parser stands.
enum Place {
    BeforeObject,
    /// At the first key, or the end of an empty object.
    FirstKey,
    /// At a key after a comma.
    NextKey,
    /// Inside a key.
    Key(JsonArguments),
    Colon(Key),
    Value(Key, JsonArguments),
    AfterValue,
    /// The call is whole, if nothing but its closer follows.
    AfterObject,
}

/// The arguments, once they have been read.
enum Given {
    /// An object in the markup.
    Object(JsonArguments),
    /// The text of an object that stood in a string.
    Unwrapped(String),
}

/// A call that has certainly begun.
pub(crate) struct Call {
    markup: Markup,
    place: Place,
    keys: Vec<Key>,
    /// There once the name is known.
    writer: Option<CallWriter>,
    arguments: Option<Given>,
}

impl Call {
    /// Takes over after `<tool_call>` and blanks.
    pub(crate) fn new(markup: Markup) -> Call {
        Call {
            markup,
            place: Place::BeforeObject,
            keys: Vec::new(),
            writer: None,
            arguments: None,
        }
    }

    /// The next character is wrong.
    fn refuse(&mut self, kind: TagErrorKind, c: char, expected: &str) -> TagError {
        let at = self.markup.len();
        self.markup.push(c.encode_utf8(&mut [0; 4]));
        self.markup.error(kind, at, expected.into())
    }

    fn take_char(&mut self, c: char, setting: &mut Setting<'_, '_>) -> Result<(), TagError> {
        let at = self.markup.len();
        let next = match &mut self.place {
            Place::Key(key) => match key.take(c, at) {
                Ok(Scanned::Inside) => None,
                Ok(_) => {
                    self.markup.push(c.encode_utf8(&mut [0; 4]));
                    return self.end_key();
                }
                Err(expected) => return Err(self.refuse(TagErrorKind::MalformedJson, c, expected)),
            },
            Place::Value(_, value) => match value.take(c, at) {
                Ok(Scanned::Inside) => None,
                Ok(Scanned::Last) => {
                    self.markup.push(c.encode_utf8(&mut [0; 4]));
                    return self.end_value(setting);
                }
                Ok(Scanned::After) => {
                    self.end_value(setting)?;
                    return self.take_char(c, setting);
                }
                Err(expected) => return Err(self.refuse(TagErrorKind::MalformedJson, c, expected)),
            },
            _ if is_blank(c) => None,
            Place::BeforeObject if c == '{' => Some(Place::FirstKey),
            Place::BeforeObject => {
                let expected = "a JSON object with `name` and `arguments`";
                return Err(self.refuse(TagErrorKind::MalformedCall, c, expected));
            }
            Place::FirstKey | Place::NextKey if c == '"' => {
                let mut key = JsonArguments::new();
                let _ = key.take(c, at);
                Some(Place::Key(key))
            }
            Place::FirstKey | Place::AfterValue if c == '}' => {
                self.markup.push("}");
                return self.end_object(setting);
            }
            Place::AfterValue if c == ',' => Some(Place::NextKey),
            Place::Colon(key) if c == ':' => Some(Place::Value(*key, JsonArguments::new())),
            place => {
                let expected = match place {
                    Place::FirstKey | Place::NextKey => "a key in double quotes",
                    Place::Colon(_) => "`:`",
                    Place::AfterValue => "`,` or `}`",
                    _ => "`</tool_call>`",
                };
                return Err(self.refuse(TagErrorKind::MalformedJson, c, expected));
            }
        };
        self.place = next.unwrap_or_else(|| core::mem::replace(&mut self.place, Place::AfterValue));
        self.markup.push(c.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn end_key(&mut self) -> Result<(), TagError> {
        let Place::Key(key) = &self.place else {
            return Ok(());
        };
        let at = key.start();
        let name = string_of(key.text(&self.markup)).unwrap_or_default();
        let expected = match Key::named(&name) {
            Some(key) if !self.keys.contains(&key) => {
                self.keys.push(key);
                self.place = Place::Colon(key);
                return Ok(());
            }
            Some(_) => alloc::format!("the key `{name}` only once"),
            None => "one of the keys `name`, `arguments`, `id`, `type`".into(),
        };
        Err(self.markup.error(TagErrorKind::MalformedCall, at, expected))
    }

    fn end_value(&mut self, setting: &mut Setting<'_, '_>) -> Result<(), TagError> {
        let place = core::mem::replace(&mut self.place, Place::AfterValue);
        match place {
            Place::Value(Key::Name, value) => self.begin(&value, setting),
            Place::Value(Key::Arguments, value) => {
                self.arguments = Some(self.given(value)?);
                self.pass(setting);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The name is known: the call starts.
    fn begin(
        &mut self,
        value: &JsonArguments,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(), TagError> {
        let Some(name) = string_of(value.text(&self.markup)) else {
            let expected = "the name of a tool in a string".into();
            let kind = TagErrorKind::MalformedCall;
            return Err(self.markup.error(kind, value.start(), expected));
        };
        if !setting.tools.contains(&name) {
            return Err(self.markup.unknown_tool(value.start(), setting.tools));
        }
        self.writer = Some(CallWriter::begin(&name, setting));
        self.pass(setting);
        Ok(())
    }

    /// What the whole value of `arguments` gives.
    fn given(&self, value: JsonArguments) -> Result<Given, TagError> {
        if value.is_object() {
            return Ok(Given::Object(value));
        }
        if let Some(inner) = string_of(value.text(&self.markup))
            && let Ok(Value::Object(_)) = json::parse(&inner, json::DEPTH_MAX)
        {
            return Ok(Given::Unwrapped(json::trim_blanks(&inner).into()));
        }
        let kind = TagErrorKind::ArgumentsNotObject;
        let expected = "an object under `arguments`".into();
        Err(self.markup.error(kind, value.start(), expected))
    }

    /// Passes on what is known of the arguments, once the name is known.
    fn pass(&mut self, setting: &mut Setting<'_, '_>) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        match (&mut self.arguments, &mut self.place) {
            (Some(Given::Object(object)), _) | (None, Place::Value(Key::Arguments, object)) => {
                object.pass(&self.markup, writer, setting.sink);
            }
            (Some(Given::Unwrapped(text)), _) => {
                writer.write(&core::mem::take(text), setting.sink);
            }
            (None, _) => {}
        }
    }

    fn end_object(&mut self, setting: &mut Setting<'_, '_>) -> Result<(), TagError> {
        let Some(writer) = &mut self.writer else {
            let expected = "the key `name` before the end of the object".into();
            let at = self.markup.len() - 1;
            return Err(self.markup.error(TagErrorKind::MalformedCall, at, expected));
        };
        if self.arguments.is_none() {
            writer.write("{}", setting.sink);
        }
        self.place = Place::AfterObject;
        Ok(())
    }
}

/// The text of a JSON string.
fn string_of(json: &str) -> Option<String> {
    match json::parse(json, 0) {
        Ok(Value::String(text)) => Some(text),
        _ => None,
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
        match (&self.place, lexeme) {
            (Place::AfterObject, Lexeme::Tag(CALL_CLOSE)) => {
                self.markup.push(CALL_CLOSE);
                self.end(setting.sink);
                return Ok((CALL_CLOSE.len(), Step::Ended));
            }
            (Place::AfterObject, Lexeme::Tag(CALL_OPEN)) => {
                self.end(setting.sink);
                return Ok((0, Step::Ended));
            }
            _ => {}
        }
        for c in lexeme.as_str().chars() {
            self.take_char(c, setting)?;
        }
        self.pass(setting);
        Ok((lexeme.as_str().len(), Step::Inside))
    }

    fn may_end(&self, _ended: Ended) -> Option<Step> {
        matches!(self.place, Place::AfterObject).then_some(Step::Ended)
    }

    fn end(&mut self, sink: &mut Sink<'_>) {
        if let Some(writer) = &mut self.writer {
            writer.end(sink);
        }
    }

    fn closer(&self) -> &'static str {
        CALL_CLOSE
    }
}

#[cfg(test)]
#[path = "hermes_json_tests.rs"]
mod tests;
