//! The channels of an output and the calls between them, in every format but harmony.
//! It must never let the cut of the text show in what it says, nor lose a byte.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::call::{Call, Opener, Opening, Section, Setting, Step, Verdict};
use crate::event::{Delivery, Ended, Finished, Sink, TagError, TagErrorKind};
use crate::fence::Fence;
use crate::format::TagFormat;
use crate::json::is_blank;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::parser::{CALL_BYTES_MAX, ParserOptions};
use crate::schema::ToolSet;
use crate::trail::{Fate, Trail};
use lockstep_step::planted;

pub(crate) const THINK_OPEN: &str = "<think>";
pub(crate) const THINK_CLOSE: &str = "</think>";
/// The tags of reasoning, in every format but harmony. A token of this text must reach the parser, also where the
/// tokenizer calls it special.
pub const THINK_TAGS: [&str; 2] = [THINK_OPEN, THINK_CLOSE];
/// What ends the calls of the formats whose openers may turn out to be text.
const CALL_CLOSE: &str = "</tool_call>";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Reasoning,
    Content,
}

enum State {
    /// Nothing but these blanks so far: one `<think>` would be eaten.
    Start(String),
    /// Inside a channel.
    Flow,
    /// After an opener that may start a call.
    Opening(Opening),
    /// Inside a call.
    Call(Box<Call>),
    /// After a call that had no opener, and these blanks: its closer may come all the same.
    Orphan(String),
}

/// The channels and the calls between them, fed by lexemes.
pub(crate) struct Channels {
    format: TagFormat,
    tools: Arc<ToolSet>,
    delivery: Delivery,
    pub(crate) call_bytes_max: usize,
    state: State,
    channel: Channel,
    /// Whether a call ended thinking, so that its closer may still come.
    late_closer: bool,
    fence: Fence,
    /// Stop tokens that vanish if the output ends here, and are text if it goes on.
    stops: Vec<&'static str>,
    /// Bytes of output behind the parser.
    offset: usize,
    pub(crate) num_calls: u32,
    pub(crate) trail: Trail,
}

impl Channels {
    /// At the start of an output.
    pub(crate) fn new(options: ParserOptions) -> Channels {
        let reasoning = options.reasoning && options.starts_in_reasoning;
        // Planted: sgl-project/sglang#36285.
        let reasoning = reasoning && !planted!(PromptTailIgnored);
        Channels {
            format: options.format,
            tools: options.tools,
            delivery: options.delivery,
            call_bytes_max: CALL_BYTES_MAX,
            state: if options.reasoning {
                State::Start(String::new())
            } else {
                State::Flow
            },
            channel: if reasoning {
                Channel::Reasoning
            } else {
                Channel::Content
            },
            late_closer: false,
            fence: Fence::new(),
            stops: Vec::new(),
            offset: 0,
            num_calls: 0,
            trail: Trail::default(),
        }
    }

    /// Whether the text that comes next is reasoning, as far as is certain.
    pub(crate) fn in_reasoning(&self) -> bool {
        self.channel == Channel::Reasoning && !self.in_call()
    }

    /// Whether a call has certainly begun that is not over.
    pub(crate) fn in_call(&self) -> bool {
        matches!(self.state, State::Call(_))
    }

    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<(), TagError> {
        if let Lexeme::Tag(tag) = lexeme
            && self.format.stops().contains(&tag)
        {
            self.stops.push(tag);
            return Ok(());
        }
        self.release_stops(sink)?;
        self.take_settled(lexeme, sink)
    }

    /// More text came after stop tokens: they were text.
    fn release_stops(&mut self, sink: &mut Sink<'_>) -> Result<(), TagError> {
        for stop in core::mem::take(&mut self.stops) {
            self.take_settled(Lexeme::Text(stop), sink)?;
        }
        Ok(())
    }

    /// Takes a lexeme, in parts if the state changes within it.
    fn take_settled(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<(), TagError> {
        let mut rest = lexeme;
        loop {
            let taken = match &self.state {
                State::Start(_) => self.take_start(rest, sink),
                State::Flow => self.take_flow(rest, sink)?,
                State::Opening(_) => self.take_opening(rest, sink)?,
                State::Call(_) => self.take_call(rest, sink)?,
                State::Orphan(_) => self.take_orphan(rest, sink),
            };
            self.offset += taken;
            rest = match rest {
                Lexeme::Text(text) if taken < text.len() => Lexeme::Text(&text[taken..]),
                Lexeme::Tag(_) if taken == 0 => rest,
                _ => return Ok(()),
            };
        }
    }

    /// Takes blanks and one `<think>`; leaves the state at anything else. Returns bytes taken.
    fn take_start(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> usize {
        let State::Start(blanks) = &mut self.state else {
            return 0;
        };
        let text = match lexeme {
            Lexeme::Tag(THINK_OPEN) => {
                let blanks = core::mem::take(blanks);
                self.trail.note(Fate::Layout, &blanks);
                self.trail.note(Fate::Layout, THINK_OPEN);
                self.state = State::Flow;
                self.channel = Channel::Reasoning;
                return THINK_OPEN.len();
            }
            Lexeme::Tag(_) => "",
            Lexeme::Text(text) => text,
        };
        let end = text.find(|c| !is_blank(c)).unwrap_or(text.len());
        blanks.push_str(&text[..end]);
        if end < text.len() || matches!(lexeme, Lexeme::Tag(_)) {
            let blanks = core::mem::take(blanks);
            self.state = State::Flow;
            self.emit(&blanks, sink);
        }
        end
    }

    fn take_flow(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<usize, TagError> {
        match (lexeme, self.channel) {
            (Lexeme::Tag(THINK_CLOSE), Channel::Reasoning) => {
                self.channel = Channel::Content;
                self.trail.note(Fate::Layout, THINK_CLOSE);
            }
            (Lexeme::Tag(THINK_CLOSE), Channel::Content) if self.late_closer => {
                self.late_closer = false;
                self.trail.note(Fate::Layout, THINK_CLOSE);
            }
            // Planted: sgl-project/sglang#35083.
            (Lexeme::Tag(THINK_OPEN), _) if planted!(OpenerFoundAnywhere) => {
                self.channel = Channel::Reasoning;
                self.trail.note(Fate::Layout, THINK_OPEN);
            }
            (Lexeme::Tag(tag), _) => match self.opener(tag) {
                Opener::None => self.emit(tag, sink),
                Opener::Undecided(opening) => self.state = State::Opening(opening),
                Opener::Certain(section) => self.begin_section(section, tag)?,
            },
            (Lexeme::Text(text), _) => self.emit(text, sink),
        }
        Ok(lexeme.as_str().len())
    }

    /// Calls begin at an unmistakable opener.
    fn begin_section(&mut self, section: Section, tag: &str) -> Result<(), TagError> {
        self.leave_reasoning();
        let markup = Markup::new(tag.into(), self.offset, self.call_bytes_max);
        let call = section.begin(markup);
        self.state = State::Call(Box::new(call.map_err(|error| self.failed(error))?));
        Ok(())
    }

    /// A call ends thinking, if it was open.
    fn leave_reasoning(&mut self) {
        if self.channel == Channel::Reasoning {
            self.channel = Channel::Content;
            self.late_closer = true;
        }
    }

    /// What a tag opens right here; nothing inside a code fence of the answer.
    fn opener(&self, tag: &'static str) -> Opener {
        let in_content = self.channel == Channel::Content;
        if in_content && self.fence.is_open() {
            return Opener::None;
        }
        Opener::of(self.format, tag, in_content, self.call_bytes_max)
    }

    fn take_opening(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<usize, TagError> {
        let State::Opening(opening) = &mut self.state else {
            return Ok(0);
        };
        let verdict = opening.take(lexeme, &self.tools);
        if let Verdict::Undecided = verdict {
            return Ok(lexeme.as_str().len());
        }
        let State::Opening(opening) = core::mem::replace(&mut self.state, State::Flow) else {
            return Ok(0);
        };
        match verdict {
            Verdict::Undecided => Ok(0),
            Verdict::Stutter => {
                self.trail.note(Fate::Layout, opening.held());
                self.take_flow(lexeme, sink)
            }
            Verdict::Text(taken) => {
                self.emit(opening.held(), sink);
                Ok(taken)
            }
            Verdict::Call(taken) => {
                self.begin_call(opening, taken, sink)?;
                Ok(taken)
            }
        }
    }

    /// A call starts at the opener, `taken` bytes of the current lexeme included.
    fn begin_call(
        &mut self,
        opening: Opening,
        taken: usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), TagError> {
        self.leave_reasoning();
        let offset = self.offset + taken - opening.held().len();
        let bytes_max = self.call_bytes_max;
        let call = opening.begin(offset, bytes_max, &mut self.setting(sink));
        self.state = State::Call(Box::new(call.map_err(|error| self.failed(error))?));
        Ok(())
    }

    fn setting<'a, 'b>(&'a self, sink: &'a mut Sink<'b>) -> Setting<'a, 'b> {
        Setting {
            tools: &self.tools,
            delivery: self.delivery,
            index: self.num_calls,
            sink,
        }
    }

    fn take_call(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<usize, TagError> {
        let State::Call(mut call) = core::mem::replace(&mut self.state, State::Flow) else {
            return Ok(0);
        };
        let (taken, step) = call
            .take(lexeme, &mut self.setting(sink))
            .map_err(|error| self.failed(error))?;
        match step {
            Step::Inside => self.state = State::Call(call),
            Step::Called => {
                self.trail.note(Fate::Call, &call.settle());
                self.num_calls += 1;
                self.state = State::Call(call);
            }
            Step::Closed => self.trail.note(Fate::Layout, &call.settle()),
            Step::Ended | Step::EndedBare => {
                self.trail.note(Fate::Call, &call.settle());
                self.num_calls += 1;
            }
        }
        if step == Step::EndedBare {
            self.state = State::Orphan(String::new());
        }
        Ok(taken)
    }

    /// Takes blanks and one closer; leaves the state at anything else. Returns bytes taken.
    fn take_orphan(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> usize {
        let State::Orphan(blanks) = &mut self.state else {
            return 0;
        };
        let text = match lexeme {
            Lexeme::Tag(_) => "",
            Lexeme::Text(text) => text,
        };
        let end = text.find(|c| !is_blank(c)).unwrap_or(text.len());
        blanks.push_str(&text[..end]);
        if end == text.len() && matches!(lexeme, Lexeme::Text(_)) {
            return end;
        }
        let blanks = core::mem::take(blanks);
        self.state = State::Flow;
        if lexeme == Lexeme::Tag(CALL_CLOSE) {
            self.trail.note(Fate::Layout, &blanks);
            self.trail.note(Fate::Layout, CALL_CLOSE);
            return CALL_CLOSE.len();
        }
        self.emit(&blanks, sink);
        end
    }

    fn failed(&mut self, error: TagError) -> TagError {
        self.trail.note(Fate::Call, &error.markup);
        self.state = State::Flow;
        error
    }

    /// `held` is the start of a tag that never became one.
    pub(crate) fn finish(
        &mut self,
        held: &str,
        ended: Ended,
        sink: &mut Sink<'_>,
    ) -> Result<Finished, TagError> {
        // Inside a call that is cut off anyway, stop tokens and the start of another are no text.
        let unfinished = matches!(self.state, State::Call(_) | State::Opening(_));
        let cut_off = ended == Ended::Length && unfinished;
        if !held.is_empty() && !cut_off {
            self.release_stops(sink)?;
        }
        let stops = match held {
            "" => String::new(),
            _ => core::mem::take(&mut self.stops).concat(),
        };
        let mut markup = None;
        let mut closer = CALL_CLOSE;
        match core::mem::replace(&mut self.state, State::Flow) {
            State::Start(blanks) | State::Orphan(blanks) => {
                self.emit(&blanks, sink);
                self.emit(held, sink);
            }
            State::Flow => self.emit(held, sink),
            State::Opening(opening) => {
                // At the end of its own accord an opener is a call only if a known name follows;
                // at the token limit whatever might have become a call is one that was cut off.
                if ended == Ended::Length || opening.is_call_at_end(&self.tools) {
                    markup = Some([opening.held(), &stops, held].concat());
                } else {
                    self.emit(opening.held(), sink);
                    self.emit(held, sink);
                }
            }
            State::Call(mut call) => {
                let step = call
                    .finish(held, ended, &mut self.setting(sink))
                    .map_err(|error| self.failed(error))?;
                closer = call.closer();
                let text = call.settle() + &stops + held;
                match step {
                    Some(Step::Closed) => self.trail.note(Fate::Layout, &text),
                    Some(_) => {
                        self.trail.note(Fate::Call, &text);
                        self.num_calls += 1;
                    }
                    None => markup = Some(text),
                }
            }
        }
        self.offset += held.len();
        if let Some(markup) = &markup {
            self.trail.note(Fate::Call, markup);
        }
        for stop in core::mem::take(&mut self.stops) {
            self.trail.note(Fate::Layout, stop);
        }
        match (markup, ended) {
            (Some(markup), Ended::Eos) => Err(TagError {
                kind: TagErrorKind::UnterminatedToolCall,
                offset: self.offset,
                expected: alloc::format!("`{closer}` before the end of the output"),
                markup,
            }),
            (dropped_call, _) => Ok(Finished {
                num_calls: self.num_calls,
                dropped_call,
            }),
        }
    }

    /// Writes text to the current channel.
    fn emit(&mut self, text: &str, sink: &mut Sink<'_>) {
        match self.channel {
            Channel::Reasoning => {
                self.trail.note(Fate::Reasoning, text);
                sink.reasoning(text);
            }
            Channel::Content => {
                self.trail.note(Fate::Content, text);
                self.fence.push(text);
                sink.content(text);
            }
        }
    }
}
