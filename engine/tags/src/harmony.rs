//! gpt-oss: messages with a channel and maybe a recipient, between special tokens. There are no
//! think tags: the channel says what is reasoning, the recipient what is a call. A header that the
//! format does not know must never be guessed at.

use alloc::string::String;
use alloc::sync::Arc;

use crate::call::Setting;
use crate::call_writer::CallWriter;
use crate::event::{Delivery, Ended, Finished, Sink, TagError, TagErrorKind};
use crate::harmony_header::{Channel, Header};
use crate::json::is_blank;
use crate::json_arguments::JsonArguments;
use crate::json_scanner::Scanned;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::schema::ToolSet;
use crate::trail::{Fate, Trail};

pub(crate) const START: &str = "<|start|>";
pub(crate) const CHANNEL: &str = "<|channel|>";
pub(crate) const CONSTRAIN: &str = "<|constrain|>";
pub(crate) const MESSAGE: &str = "<|message|>";
const END: &str = "<|end|>";
const CALL: &str = "<|call|>";
const RETURN: &str = "<|return|>";

/// All tags, whether or not tools are offered.
pub(crate) const TAGS: [&str; 7] = [START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN];

/// Where in the messages the parser stands.
enum Place {
    Header(Header),
    /// In a text for the reader. Whether anything of it has been said yet.
    Text(Channel, bool),
    /// In the arguments of a call.
    Arguments(CallWriter, JsonArguments),
    /// After the arguments, which are whole.
    AfterArguments(CallWriter),
    /// In a message to somebody who is no tool.
    Elsewhere,
}

/// The messages of one output, fed by lexemes.
pub(crate) struct Messages {
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) delivery: Delivery,
    pub(crate) num_calls: u32,
    pub(crate) trail: Trail,
    place: Place,
    /// The message so far, but for text that has been said.
    markup: Markup,
    /// Whether a channel has text already, so that the next message of it starts a new line.
    has_reasoning: bool,
    has_content: bool,
}

impl Messages {
    pub(crate) fn new(tools: Arc<ToolSet>, delivery: Delivery, call_bytes_max: usize) -> Messages {
        Messages {
            tools,
            delivery,
            num_calls: 0,
            trail: Trail::default(),
            place: Place::Header(Header::default()),
            markup: Markup::new(String::new(), 0, call_bytes_max),
            has_reasoning: false,
            has_content: false,
        }
    }

    pub(crate) fn in_reasoning(&self) -> bool {
        matches!(self.place, Place::Text(Channel::Analysis, _))
    }

    pub(crate) fn in_call(&self) -> bool {
        matches!(self.place, Place::Arguments(..) | Place::AfterArguments(..))
    }

    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<(), TagError> {
        let taken = self.take_lexeme(lexeme, sink);
        if let Err(error) = &taken {
            self.trail.note(Fate::Call, &error.markup);
        }
        taken
    }

    fn take_lexeme(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<(), TagError> {
        let room = self.markup.room();
        let text = lexeme.as_str();
        let is_kept = !matches!(self.place, Place::Text(..) | Place::Elsewhere);
        if room < text.len() && is_kept {
            // What still fits is read first, so that the outcome does not depend on the cut.
            if let Lexeme::Text(text) = lexeme {
                self.take_fitting(Lexeme::Text(&text[..text.floor_char_boundary(room)]), sink)?;
            }
            return Err(self.markup.too_long());
        }
        self.take_fitting(lexeme, sink)
    }

    fn take_fitting(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<(), TagError> {
        let is_end = matches!(lexeme, Lexeme::Tag(END | CALL | RETURN));
        match &mut self.place {
            Place::Header(header) => {
                header.take(lexeme, &mut self.markup)?;
                if lexeme == Lexeme::Tag(MESSAGE) {
                    self.begin_body(sink)?;
                }
            }
            Place::Text(..) if is_end => {
                self.markup.push(lexeme.as_str());
                self.end_message(Fate::Layout);
            }
            Place::Text(..) => self.say(lexeme.as_str(), sink),
            Place::Elsewhere => {
                self.markup.push(lexeme.as_str());
                let text = self.markup.settle();
                self.trail.note(Fate::Layout, &text);
                if is_end {
                    self.end_message(Fate::Layout);
                }
            }
            Place::AfterArguments(writer) if is_end => {
                writer.end(sink);
                self.end_call(lexeme.as_str());
            }
            Place::Arguments(writer, arguments) if is_end && arguments.is_empty() => {
                writer.write("{}", sink);
                writer.end(sink);
                self.end_call(lexeme.as_str());
            }
            Place::Arguments(..) | Place::AfterArguments(..) => {
                for c in lexeme.as_str().chars() {
                    self.take_argument(c, sink)?;
                }
                if let Place::Arguments(writer, arguments) = &mut self.place {
                    arguments.pass(&self.markup, writer, sink);
                }
            }
        }
        Ok(())
    }

    /// The header is whole: decides what the body is.
    fn begin_body(&mut self, sink: &mut Sink<'_>) -> Result<(), TagError> {
        let Place::Header(header) = &self.place else {
            return Ok(());
        };
        let recipient = header.recipient();
        let tool = recipient.clone().and_then(|range| {
            let at = range.start;
            let tool = self.markup.get(range).strip_prefix("functions.")?;
            // Where no tools are offered, no message is a call.
            (!self.tools.is_empty()).then_some((at, tool))
        });
        self.place = match (tool, recipient, header.channel()) {
            (Some((at, tool)), _, _) => {
                if !self.tools.contains(tool) {
                    return Err(self.markup.unknown_tool(at, &self.tools));
                }
                let mut setting = Setting {
                    tools: &self.tools,
                    delivery: self.delivery,
                    index: self.num_calls,
                    sink,
                };
                let writer = CallWriter::begin(tool, &mut setting);
                Place::Arguments(writer, JsonArguments::new())
            }
            (None, None, Some(channel)) => Place::Text(channel, false),
            _ => Place::Elsewhere,
        };
        if matches!(self.place, Place::Text(..)) {
            let header = self.markup.settle();
            self.trail.note(Fate::Layout, &header);
        }
        Ok(())
    }

    /// Says text of the current message, on a line of its own.
    fn say(&mut self, text: &str, sink: &mut Sink<'_>) {
        let Place::Text(channel, begun) = &mut self.place else {
            return;
        };
        let starts = !core::mem::replace(begun, true);
        self.markup.push(text);
        match channel {
            Channel::Analysis => {
                if starts && core::mem::replace(&mut self.has_reasoning, true) {
                    sink.reasoning("\n");
                }
                sink.reasoning(text);
                self.trail.note(Fate::Reasoning, &self.markup.settle());
            }
            Channel::Commentary | Channel::Final => {
                if starts && core::mem::replace(&mut self.has_content, true) {
                    sink.content("\n");
                }
                sink.content(text);
                self.trail.note(Fate::Content, &self.markup.settle());
            }
        }
    }

    fn take_argument(&mut self, c: char, sink: &mut Sink<'_>) -> Result<(), TagError> {
        let at = self.markup.len();
        let wrong = match &mut self.place {
            Place::Arguments(_, arguments) => match arguments.take(c, at) {
                Ok(Scanned::Inside) => None,
                Ok(Scanned::Last) => {
                    self.markup.push(c.encode_utf8(&mut [0; 4]));
                    return self.end_arguments(sink);
                }
                Ok(Scanned::After) => return self.end_arguments(sink),
                Err(expected) => Some(expected),
            },
            Place::AfterArguments(_) if !is_blank(c) => Some("`<|call|>`"),
            _ => None,
        };
        self.markup.push(c.encode_utf8(&mut [0; 4]));
        match wrong {
            None => Ok(()),
            Some(expected) => {
                let kind = TagErrorKind::MalformedJson;
                Err(self.markup.error(kind, at, expected.into()))
            }
        }
    }

    /// The value is whole.
    fn end_arguments(&mut self, sink: &mut Sink<'_>) -> Result<(), TagError> {
        let place = core::mem::replace(&mut self.place, Place::Elsewhere);
        let Place::Arguments(mut writer, mut arguments) = place else {
            return Ok(());
        };
        if !arguments.is_object() {
            let kind = TagErrorKind::ArgumentsNotObject;
            let expected = "an object of arguments".into();
            return Err(self.markup.error(kind, arguments.start(), expected));
        }
        arguments.pass(&self.markup, &mut writer, sink);
        self.place = Place::AfterArguments(writer);
        Ok(())
    }

    fn end_call(&mut self, tag: &str) {
        self.markup.push(tag);
        self.num_calls += 1;
        self.end_message(Fate::Call);
    }

    fn end_message(&mut self, fate: Fate) {
        let text = self.markup.settle();
        self.trail.note(fate, &text);
        self.place = Place::Header(Header::default());
    }

    /// `held` is the start of a tag that never became one.
    pub(crate) fn finish(
        &mut self,
        held: &str,
        ended: Ended,
        sink: &mut Sink<'_>,
    ) -> Result<Finished, TagError> {
        if matches!(self.place, Place::Text(..)) && !held.is_empty() {
            self.say(held, sink);
        } else {
            self.markup.push(held);
        }
        let end = self.markup.len();
        let (kind, expected) = match &self.place {
            Place::Header(_) if end > 0 => (
                TagErrorKind::BadMessageHeader,
                "`<|message|>` before the end of the output",
            ),
            Place::Arguments(..) | Place::AfterArguments(_) => (
                TagErrorKind::UnterminatedToolCall,
                "`<|call|>` before the end of the output",
            ),
            Place::Header(_) | Place::Text(..) | Place::Elsewhere => {
                let text = self.markup.settle();
                self.trail.note(Fate::Layout, &text);
                return Ok(Finished {
                    num_calls: self.num_calls,
                    dropped_call: None,
                });
            }
        };
        let is_call = self.in_call() || self.markup.since(0).contains(" to=functions.");
        let error = self.markup.error(kind, end, expected.into());
        let fate = match ended {
            Ended::Length if !is_call => Fate::Layout,
            _ => Fate::Call,
        };
        self.trail.note(fate, &error.markup);
        match ended {
            Ended::Eos => Err(error),
            Ended::Length => Ok(Finished {
                num_calls: self.num_calls,
                dropped_call: is_call.then_some(error.markup),
            }),
        }
    }
}

#[cfg(test)]
#[path = "harmony_tests.rs"]
mod tests;
