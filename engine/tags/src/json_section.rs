//! A section of calls whose arguments are a JSON value between special tokens, as DeepSeek and Kimi
//! write them. Where the value ends is found by reading it: no tag inside a string counts.

use crate::call::{ReadCall, Setting, Step};
use crate::call_writer::CallWriter;
use crate::event::{Ended, TagError, TagErrorKind};
use crate::json::{is_blank, trim_blanks};
use crate::json_arguments::JsonArguments;
use crate::json_scanner::Scanned;
use crate::lexer::Lexeme;
use crate::markup::Markup;

/// How a format spells a section.
pub(crate) struct Spelling {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    pub(crate) call_open: &'static str,
    /// What ends the head of a call.
    pub(crate) head_end: &'static str,
    pub(crate) call_close: &'static str,
    pub(crate) head: HeadStyle,
    /// Whether a section without a call is nothing, rather than an error.
    pub(crate) may_be_empty: bool,
    /// Whether the closer may be missing at the end of the output, after a whole call.
    pub(crate) may_stay_open: bool,
    /// What may come between two calls, for error messages.
    pub(crate) next: &'static str,
}

/// What stands in a call besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadStyle {
    /// The head is the name.
    Name,
    /// The head is an id that carries the name: `functions.NAME:NUMBER`.
    Id,
    /// The head is a word; then come a line with the name, and the arguments in a Markdown fence.
    WordThenFence(&'static str),
}

const FENCE_OPEN: &str = "```json";
const FENCE_CLOSE: &str = "```";

/// Where inside a section the parser stands. Numbers are places in the markup.
enum Place {
    /// After the opener.
    Start,
    /// After a call.
    Between,
    Head {
        start: usize,
    },
    /// In the line of the name.
    NameLine {
        start: usize,
    },
    /// In a mark of the fence of which this much is still to come.
    FenceOpen(&'static str),
    Arguments(JsonArguments),
    FenceClose(&'static str),
    AfterArguments,
}

/// A section that has begun.
pub(crate) struct Section {
    markup: Markup,
    spelling: &'static Spelling,
    place: Place,
    /// There while a call is read whose name is known.
    writer: Option<CallWriter>,
}

impl Section {
    /// Takes over after the opener.
    pub(crate) fn new(spelling: &'static Spelling, markup: Markup) -> Section {
        Section {
            markup,
            spelling,
            place: Place::Start,
            writer: None,
        }
    }

    /// Takes a tag where tags have a meaning; `None` where it is text like any other.
    fn take_tag(
        &mut self,
        tag: &'static str,
        setting: &mut Setting<'_, '_>,
    ) -> Option<Result<(usize, Step), TagError>> {
        let spelling = self.spelling;
        let at_start = matches!(self.place, Place::Start);
        let mut step = Step::Inside;
        match self.place {
            // The opener stutters: it was nothing, and this one starts afresh.
            Place::Start if tag == spelling.open => return Some(Ok((0, Step::Closed))),
            Place::Start | Place::Between if tag == spelling.call_open => {
                let start = self.markup.len() + tag.len();
                self.place = Place::Head { start };
            }
            Place::Start | Place::Between
                if tag == spelling.close && (!at_start || spelling.may_be_empty) =>
            {
                step = Step::Closed;
            }
            Place::Start | Place::Between => {
                return Some(Err(self.markup.refuse(tag, spelling.next)));
            }
            Place::Head { start } if tag == spelling.head_end => {
                if let Err(error) = self.end_head(start, setting) {
                    return Some(Err(error));
                }
            }
            Place::Head { .. } => {
                let expected = alloc::format!("`{}`", spelling.head_end);
                return Some(Err(self.markup.refuse(tag, &expected)));
            }
            Place::AfterArguments if tag == spelling.call_close => {
                if let Some(mut writer) = self.writer.take() {
                    writer.end(setting.sink);
                }
                self.place = Place::Between;
                step = Step::Called;
            }
            _ => return None,
        }
        self.markup.push(tag);
        Some(Ok((tag.len(), step)))
    }

    /// The head is whole; what ends it is not in the markup yet.
    fn end_head(&mut self, start: usize, setting: &mut Setting<'_, '_>) -> Result<(), TagError> {
        let head = trim_blanks(self.markup.since(start));
        let after = self.markup.len() + self.spelling.head_end.len();
        self.place = match self.spelling.head {
            HeadStyle::WordThenFence(word) if head == word => Place::NameLine { start: after },
            HeadStyle::WordThenFence(word) => {
                let expected = alloc::format!("`{word}`");
                let kind = TagErrorKind::MalformedCall;
                return Err(self.markup.error(kind, start, expected));
            }
            HeadStyle::Name => {
                self.begin(start, setting)?;
                Place::Arguments(JsonArguments::new())
            }
            HeadStyle::Id => {
                let Some(name) = name_of_id(head) else {
                    let expected = "an id of the shape `functions.NAME:NUMBER`".into();
                    return Err(self.markup.error(TagErrorKind::BadCallId, start, expected));
                };
                self.writer = Some(begin(name, start, &self.markup, setting)?);
                Place::Arguments(JsonArguments::new())
            }
        };
        Ok(())
    }

    /// The name is all of the markup from `start` on.
    fn begin(&mut self, start: usize, setting: &mut Setting<'_, '_>) -> Result<(), TagError> {
        let name = trim_blanks(self.markup.since(start));
        if name.is_empty() {
            let expected = "the name of a tool".into();
            let kind = TagErrorKind::MalformedCall;
            return Err(self.markup.error(kind, start, expected));
        }
        self.writer = Some(begin(name, start, &self.markup, setting)?);
        Ok(())
    }

    /// The next character is wrong.
    fn refuse(&mut self, kind: TagErrorKind, c: char, expected: &str) -> TagError {
        let at = self.markup.len();
        self.markup.push(c.encode_utf8(&mut [0; 4]));
        self.markup.error(kind, at, expected.into())
    }

    fn take_char(&mut self, c: char, setting: &mut Setting<'_, '_>) -> Result<(), TagError> {
        let malformed = TagErrorKind::MalformedCall;
        let at = self.markup.len();
        let next = match &mut self.place {
            Place::Head { .. } => None,
            Place::NameLine { start } if c == '\n' => {
                let start = *start;
                self.begin(start, setting)?;
                Some(Place::FenceOpen(FENCE_OPEN))
            }
            Place::NameLine { .. } if c != '<' => None,
            Place::NameLine { .. } => {
                return Err(self.refuse(malformed, c, "a line feed after the name"));
            }
            Place::Arguments(arguments) => match arguments.take(c, at) {
                Ok(Scanned::Inside) => None,
                Ok(Scanned::Last) => {
                    self.markup.push(c.encode_utf8(&mut [0; 4]));
                    return self.end_arguments(setting);
                }
                Ok(Scanned::After) => {
                    self.end_arguments(setting)?;
                    return self.take_char(c, setting);
                }
                Err(expected) => return Err(self.refuse(TagErrorKind::MalformedJson, c, expected)),
            },
            Place::FenceOpen(FENCE_OPEN) | Place::FenceClose(FENCE_CLOSE) if is_blank(c) => None,
            Place::FenceOpen(rest) => match rest.strip_prefix(c) {
                Some("") => Some(Place::Arguments(JsonArguments::new())),
                Some(rest) => Some(Place::FenceOpen(rest)),
                None => return Err(self.refuse(malformed, c, "```` ```json ```` after the name")),
            },
            Place::FenceClose(rest) => match rest.strip_prefix(c) {
                Some("") => Some(Place::AfterArguments),
                Some(rest) => Some(Place::FenceClose(rest)),
                None => {
                    let kind = TagErrorKind::MalformedJson;
                    return Err(self.refuse(kind, c, "```` ``` ```` after the arguments"));
                }
            },
            Place::Start | Place::Between | Place::AfterArguments if is_blank(c) => None,
            Place::Start | Place::Between => {
                return Err(self.refuse(malformed, c, self.spelling.next));
            }
            Place::AfterArguments => {
                let expected = alloc::format!("`{}`", self.spelling.call_close);
                return Err(self.refuse(TagErrorKind::MalformedJson, c, &expected));
            }
        };
        if let Some(next) = next {
            self.place = next;
        }
        self.markup.push(c.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn end_arguments(&mut self, setting: &mut Setting<'_, '_>) -> Result<(), TagError> {
        self.pass(setting);
        let Place::Arguments(arguments) = &self.place else {
            return Ok(());
        };
        if !arguments.is_object() {
            let kind = TagErrorKind::ArgumentsNotObject;
            let expected = "an object of arguments".into();
            return Err(self.markup.error(kind, arguments.start(), expected));
        }
        self.place = match self.spelling.head {
            HeadStyle::WordThenFence(_) => Place::FenceClose(FENCE_CLOSE),
            HeadStyle::Name | HeadStyle::Id => Place::AfterArguments,
        };
        Ok(())
    }

    fn pass(&mut self, setting: &mut Setting<'_, '_>) {
        if let (Place::Arguments(arguments), Some(writer)) = (&mut self.place, &mut self.writer) {
            arguments.pass(&self.markup, writer, setting.sink);
        }
    }
}

/// The name inside an id: between the prefix, which may be missing, and the last colon.
fn name_of_id(id: &str) -> Option<&str> {
    let (name, number) = id.rsplit_once(':')?;
    let name = name.strip_prefix("functions.").unwrap_or(name);
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (is_number && !name.is_empty()).then_some(name)
}

fn begin(
    name: &str,
    at: usize,
    markup: &Markup,
    setting: &mut Setting<'_, '_>,
) -> Result<CallWriter, TagError> {
    if !setting.tools.contains(name) {
        return Err(markup.unknown_tool(at, setting.tools));
    }
    Ok(CallWriter::begin(name, setting))
}

impl ReadCall for Section {
    fn markup(&mut self) -> &mut Markup {
        &mut self.markup
    }

    fn take(
        &mut self,
        lexeme: Lexeme<'_>,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(usize, Step), TagError> {
        if let Lexeme::Tag(tag) = lexeme
            && let Some(taken) = self.take_tag(tag, setting)
        {
            return taken;
        }
        for c in lexeme.as_str().chars() {
            self.take_char(c, setting)?;
        }
        self.pass(setting);
        Ok((lexeme.as_str().len(), Step::Inside))
    }

    fn may_end(&self, ended: Ended) -> Option<Step> {
        let between = matches!(self.place, Place::Between);
        let may_stay_open = self.spelling.may_stay_open || ended == Ended::Length;
        (between && may_stay_open).then_some(Step::Closed)
    }

    fn closer(&self) -> &'static str {
        match self.place {
            Place::Start | Place::Between => self.spelling.close,
            _ => self.spelling.call_close,
        }
    }
}

#[cfg(test)]
#[path = "section_tests.rs"]
mod tests;
