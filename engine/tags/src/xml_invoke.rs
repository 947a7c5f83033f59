//! One invocation in XML-like tags: a head with the tool's name, parameters, an end. Qwen, MiniMax
//! and DeepSeek's DSML spell it differently. Nothing is escaped in a value: a tag inside one must
//! never count as structure unless its position makes it so.

use alloc::string::String;
use alloc::vec::Vec;

use crate::arguments::Arguments;
use crate::call::Setting;
use crate::call_writer::CallWriter;
use crate::event::{Sink, TagError, TagErrorKind};
use crate::json::is_blank;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::types::Dialect;
use crate::xml_values::{Layout, Stripper, Values, WiredArguments, Written};

/// How a format spells an invocation.
pub(crate) struct Spelling {
    /// What comes before and after the name.
    pub(crate) invoke_open: &'static str,
    pub(crate) name_end: &'static str,
    pub(crate) invoke_close: &'static str,
    /// What comes before a parameter's name, and what may come after it.
    pub(crate) param_open: &'static str,
    pub(crate) key_ends: &'static [(&'static str, Written)],
    pub(crate) param_close: &'static str,
    pub(crate) layout: Layout,
    /// How values are read that the tags do not type; `None` where tags type them all.
    pub(crate) dialect: Option<Dialect>,
    /// What has to follow a whole parameter, for error messages.
    pub(crate) next: &'static str,
}

/// A name inside a tag. Numbers are places in the markup.
#[derive(Clone, Copy)]
struct Head {
    /// Where the tag starts and where the name does.
    tag: usize,
    start: usize,
    /// Where the name ends, once something has ended it.
    end: Option<usize>,
}

impl Head {
    fn new(tag: usize, start: usize) -> Head {
        Head {
            tag,
            start,
            end: None,
        }
    }

    fn name<'a>(&self, markup: &'a Markup) -> &'a str {
        markup.get(self.start..self.end.unwrap_or(markup.len()))
    }

    /// Follows the next character, which is the last one of the markup. Gives the number of the
    /// end among `ends` that it completes; `Err` if it fits none.
    fn follow<'a>(
        &mut self,
        c: char,
        markup: &Markup,
        mut ends: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Option<usize>, ()> {
        let at = markup.len() - c.len_utf8();
        if self.end.is_none() {
            if !ends.clone().any(|end| end.starts_with(c)) {
                let fine = !matches!(c, '<' | '>' | '"' | '\n' | '\r');
                return if fine { Ok(None) } else { Err(()) };
            }
            self.end = Some(at);
        }
        let tail = markup.since(self.end.unwrap_or(at));
        if !ends.clone().any(|end| end.starts_with(tail)) {
            return Err(());
        }
        Ok(ends.position(|end| end == tail))
    }
}

/// Where inside an invocation the parser stands.
enum Place {
    Name(Head),
    /// After the name or after a whole parameter.
    Between,
    Key(Head),
    /// Inside a value, whose text starts here. What it quotes may be a next parameter.
    Value {
        start: usize,
        quoted: Option<Head>,
    },
    /// After a closer that ends the value only if a parameter or the invocation's end follows.
    Closing {
        start: usize,
        end: usize,
    },
}

/// An invocation whose opening tag is behind.
pub(crate) struct Invoke {
    spelling: &'static Spelling,
    place: Place,
    tool: String,
    key: String,
    /// There once the name is known.
    values: Option<Values>,
    stripper: Stripper,
}

impl Invoke {
    /// An invocation whose opening tag is the last thing in the markup.
    pub(crate) fn new(spelling: &'static Spelling, markup: &Markup) -> Invoke {
        let start = markup.len();
        Invoke {
            spelling,
            place: Place::Name(Head::new(start - spelling.invoke_open.len(), start)),
            tool: String::new(),
            key: String::new(),
            values: None,
            stripper: Stripper::new(spelling.layout),
        }
    }

    /// Takes the next lexeme, all of it; true if it completed the invocation. The call's last word
    /// is left to [`Invoke::end`].
    pub(crate) fn take(
        &mut self,
        lexeme: Lexeme<'_>,
        markup: &mut Markup,
        setting: &mut Setting<'_, '_>,
    ) -> Result<bool, TagError> {
        match lexeme {
            Lexeme::Text(text) => self.take_text(text, markup, setting).map(|()| false),
            Lexeme::Tag(tag) => self.take_tag(tag, markup, setting),
        }
    }

    /// Says the end of the call, which is whole.
    pub(crate) fn end(&mut self, sink: &mut Sink<'_>) {
        if let Some(values) = &mut self.values {
            values.end(sink);
        }
    }

    fn take_text(
        &mut self,
        text: &str,
        markup: &mut Markup,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(), TagError> {
        let mut rest = text;
        while !rest.is_empty() {
            let taken = match self.place {
                Place::Name(head) => self.take_name(rest, head, markup, setting)?,
                Place::Key(head) => self.take_key(rest, head, markup, setting)?,
                Place::Between => match rest.find(|c| !is_blank(c)) {
                    Some(at) => return Err(markup.refuse_char(rest, at, self.spelling.next)),
                    None => {
                        markup.push(rest);
                        rest.len()
                    }
                },
                Place::Value { start, quoted } => {
                    self.take_value(rest, start, quoted, markup, setting)?;
                    rest.len()
                }
                Place::Closing { start, end } => {
                    let blanks = rest.find(|c| !is_blank(c)).unwrap_or(rest.len());
                    markup.push(&rest[..blanks]);
                    if blanks < rest.len() {
                        self.reopen_value(start, end, markup, setting.sink);
                    }
                    blanks
                }
            };
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Takes text up to the end of the name.
    fn take_name(
        &mut self,
        text: &str,
        mut head: Head,
        markup: &mut Markup,
        setting: &mut Setting<'_, '_>,
    ) -> Result<usize, TagError> {
        for (i, c) in text.char_indices() {
            let name_end = self.spelling.name_end;
            let after = i + c.len_utf8();
            markup.push(&text[i..after]);
            match head.follow(c, markup, core::iter::once(name_end)) {
                Ok(None) => {}
                Ok(Some(_)) => {
                    self.place = Place::Between;
                    self.begin(head, markup, setting)?;
                    return Ok(after);
                }
                Err(()) => return Err(refused(markup, c, &[name_end])),
            }
        }
        self.place = Place::Name(head);
        Ok(text.len())
    }

    /// The name is known: the call starts.
    fn begin(
        &mut self,
        head: Head,
        markup: &Markup,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(), TagError> {
        let name = head.name(markup);
        if name.is_empty() {
            let expected = "the name of a tool".into();
            return Err(markup.error(TagErrorKind::MalformedCall, head.start, expected));
        }
        if !setting.tools.contains(name) {
            return Err(markup.unknown_tool(head.start, setting.tools));
        }
        self.tool = name.into();
        self.values = Some(match self.spelling.dialect {
            Some(dialect) => {
                let arguments = Arguments::new(name, dialect, setting);
                arguments.begin(setting.sink);
                Values::Typed(arguments)
            }
            None => Values::Wired(WiredArguments::new(CallWriter::begin(name, setting))),
        });
        Ok(())
    }

    /// Takes text up to the end of a parameter's name.
    fn take_key(
        &mut self,
        text: &str,
        mut head: Head,
        markup: &mut Markup,
        setting: &mut Setting<'_, '_>,
    ) -> Result<usize, TagError> {
        let ends = self.spelling.key_ends;
        for (i, c) in text.char_indices() {
            let after = i + c.len_utf8();
            markup.push(&text[i..after]);
            match head.follow(c, markup, ends.iter().map(|(end, _)| *end)) {
                Ok(None) => {}
                Ok(Some(which)) => {
                    self.begin_value(head, ends[which].1, markup, setting.sink)?;
                    return Ok(after);
                }
                Err(()) => {
                    let ends: Vec<&str> = ends.iter().map(|(end, _)| *end).collect();
                    return Err(refused(markup, c, &ends));
                }
            }
        }
        self.place = Place::Key(head);
        Ok(text.len())
    }

    fn begin_value(
        &mut self,
        head: Head,
        written: Written,
        markup: &Markup,
        sink: &mut Sink<'_>,
    ) -> Result<(), TagError> {
        self.key = head.name(markup).into();
        let Some(values) = &mut self.values else {
            return Ok(());
        };
        if !values.may_take(&self.key) {
            let expected = alloc::format!("parameter `{}` only once", self.key);
            let kind = TagErrorKind::DuplicateParameter;
            return Err(markup.error(kind, head.start, expected));
        }
        values.begin_value(&self.key, written, sink);
        self.stripper = Stripper::new(self.spelling.layout);
        self.place = Place::Value {
            start: markup.len(),
            quoted: None,
        };
        Ok(())
    }

    /// Takes text of a value. A whole head of a declared parameter at the start of a line is no
    /// data: there the closer of this value was lost.
    fn take_value(
        &mut self,
        text: &str,
        start: usize,
        mut quoted: Option<Head>,
        markup: &mut Markup,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(), TagError> {
        let mut pushed = 0;
        for (i, c) in text.char_indices() {
            let Some(head) = &mut quoted else {
                break;
            };
            pushed = i + c.len_utf8();
            markup.push(&text[i..pushed]);
            let ends = self.spelling.key_ends.iter().map(|(end, _)| *end);
            match head.follow(c, markup, ends) {
                Ok(None) => {}
                Ok(Some(_)) if declares(&self.tool, head.name(markup), setting) => {
                    let expected =
                        alloc::format!("`{}` before the next parameter", self.spelling.param_close);
                    return Err(markup.error(TagErrorKind::MalformedCall, head.tag, expected));
                }
                Ok(Some(_)) | Err(()) => quoted = None,
            }
        }
        markup.push(&text[pushed..]);
        self.place = Place::Value { start, quoted };
        self.value_text(text, setting.sink);
        Ok(())
    }

    fn value_text(&mut self, text: &str, sink: &mut Sink<'_>) {
        if let Some(values) = &mut self.values {
            self.stripper.push(text, |data| values.text(data, sink));
        }
    }

    /// A closer was data after all: it and the blanks behind it belong to the value.
    fn reopen_value(&mut self, start: usize, end: usize, markup: &Markup, sink: &mut Sink<'_>) {
        self.value_text(markup.since(end), sink);
        self.place = Place::Value {
            start,
            quoted: None,
        };
    }

    fn take_tag(
        &mut self,
        tag: &'static str,
        markup: &mut Markup,
        setting: &mut Setting<'_, '_>,
    ) -> Result<bool, TagError> {
        let spelling = self.spelling;
        let is_next = tag == spelling.param_open || tag == spelling.invoke_close;
        if let Place::Closing { start, end } = self.place {
            if is_next {
                self.end_value(start, end, tag, markup, setting.sink)?;
                self.place = Place::Between;
            } else {
                self.reopen_value(start, end, markup, setting.sink);
            }
        }
        let at = markup.len();
        match self.place {
            Place::Name(_) => return Err(markup.refuse(tag, &quoted_ends(&[spelling.name_end]))),
            Place::Key(_) => {
                let ends: Vec<&str> = spelling.key_ends.iter().map(|(end, _)| *end).collect();
                return Err(markup.refuse(tag, &quoted_ends(&ends)));
            }
            Place::Between if tag == spelling.invoke_close => {
                markup.push(tag);
                let closed = self
                    .values
                    .as_mut()
                    .map(|values| values.close(setting.sink));
                return match closed {
                    Some(Err(bad)) => Err(markup.error_at(bad.kind, bad.offset, bad.expected)),
                    _ => Ok(true),
                };
            }
            Place::Between if tag == spelling.param_open => {
                self.place = Place::Key(Head::new(at, at + tag.len()));
            }
            Place::Between => return Err(markup.refuse(tag, spelling.next)),
            Place::Value { start, .. } if tag == spelling.param_close => {
                self.place = Place::Closing { start, end: at };
            }
            Place::Value { start, .. } => {
                let starts_line = markup.since(start).ends_with('\n');
                let quoted = (tag == spelling.param_open && starts_line)
                    .then(|| Head::new(at, at + tag.len()));
                self.place = Place::Value { start, quoted };
                self.value_text(tag, setting.sink);
            }
            Place::Closing { .. } => {} // settled above
        }
        markup.push(tag);
        Ok(false)
    }

    /// The value between these places is certain, since `tag` follows it.
    fn end_value(
        &mut self,
        start: usize,
        end: usize,
        tag: &str,
        markup: &mut Markup,
        sink: &mut Sink<'_>,
    ) -> Result<(), TagError> {
        let (raw, before) = self.spelling.layout.strip(markup.get(start..end));
        let offset = markup.offset_of(start + before);
        let Some(values) = &mut self.values else {
            return Ok(());
        };
        let ended = values.end_value(&self.key, raw, offset, sink);
        ended.map_err(|bad| {
            markup.push(tag);
            markup.error_at(bad.kind, bad.offset, bad.expected)
        })
    }
}

fn declares(tool: &str, key: &str, setting: &Setting<'_, '_>) -> bool {
    setting
        .tools
        .parameters(tool)
        .is_some_and(|parameters| parameters.declares(key))
}

/// The last character of the markup may not stand there.
fn refused(markup: &Markup, c: char, ends: &[&str]) -> TagError {
    let at = markup.len() - c.len_utf8();
    markup.error(TagErrorKind::MalformedCall, at, quoted_ends(ends))
}

fn quoted_ends(ends: &[&str]) -> String {
    let mut text = String::new();
    for (i, end) in ends.iter().enumerate() {
        text.push_str(if i == 0 { "`" } else { " or `" });
        text.push_str(end);
        text.push('`');
    }
    text.push_str(" after the name");
    text
}
