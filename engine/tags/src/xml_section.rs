//! A block of invocations in XML-like tags, as MiniMax and DeepSeek's DSML write calls.
//! Each call counts as soon as it is whole; the block itself has to be closed.

use alloc::boxed::Box;

use crate::call::{ReadCall, Setting, Step};
use crate::event::{Ended, TagError, TagErrorKind};
use crate::json::is_blank;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::xml_invoke::{Invoke, Spelling};

/// How a format spells a block.
pub(crate) struct Block {
    /// Pairs of tags that a block may stand between.
    pub(crate) tags: &'static [(&'static str, &'static str)],
    pub(crate) spelling: &'static Spelling,
    /// Whether a block without a call is nothing, rather than an error.
    pub(crate) may_be_empty: bool,
    /// What may come between two calls, for error messages.
    pub(crate) next: &'static str,
}

impl Block {
    /// The tag that closes what this tag opens.
    pub(crate) fn close_of(&self, open: &str) -> Option<&'static str> {
        let pair = self.tags.iter().find(|(known, _)| *known == open);
        pair.map(|(_, close)| *close)
    }
}

/// Where inside a block the parser stands.
enum Place {
    /// After the opener.
    Start,
    /// After a call.
    Between,
    Invoke(Box<Invoke>),
}

/// A block that has begun.
pub(crate) struct Section {
    markup: Markup,
    block: &'static Block,
    close: &'static str,
    place: Place,
}

impl Section {
    /// Takes over after the opener.
    pub(crate) fn new(block: &'static Block, close: &'static str, markup: Markup) -> Section {
        Section {
            markup,
            block,
            close,
            place: Place::Start,
        }
    }

    fn take_tag(&mut self, tag: &'static str) -> Result<(usize, Step), TagError> {
        let at_start = matches!(self.place, Place::Start);
        if at_start && self.block.close_of(tag).is_some() {
            // The opener stutters: it was nothing, and this one starts afresh.
            return Ok((0, Step::Closed));
        }
        if tag == self.block.spelling.invoke_open {
            self.markup.push(tag);
            self.place = Place::Invoke(Box::new(Invoke::new(self.block.spelling, &self.markup)));
            return Ok((tag.len(), Step::Inside));
        }
        if tag == self.close && (!at_start || self.block.may_be_empty) {
            self.markup.push(tag);
            return Ok((tag.len(), Step::Closed));
        }
        Err(self.markup.refuse(tag, self.block.next))
    }
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
        let taken = lexeme.as_str().len();
        if let Place::Invoke(invoke) = &mut self.place {
            if !invoke.take(lexeme, &mut self.markup, setting)? {
                return Ok((taken, Step::Inside));
            }
            invoke.end(setting.sink);
            self.place = Place::Between;
            return Ok((taken, Step::Called));
        }
        match lexeme {
            Lexeme::Tag(tag) => self.take_tag(tag),
            Lexeme::Text(text) => match text.find(|c| !is_blank(c)) {
                Some(at) => Err(self.markup.refuse_char(text, at, self.block.next)),
                None => {
                    self.markup.push(text);
                    Ok((taken, Step::Inside))
                }
            },
        }
    }

    fn may_end(&self, ended: Ended) -> Option<Step> {
        let between = matches!(self.place, Place::Between);
        (between && ended == Ended::Length).then_some(Step::Closed)
    }

    fn closer(&self) -> &'static str {
        match self.place {
            Place::Invoke(_) => self.block.spelling.invoke_close,
            _ => self.close,
        }
    }
}

/// The error of an invocation that stands outside of any block.
pub(crate) fn bare_invoke(block: &'static Block, markup: &Markup) -> TagError {
    let (open, _) = block.tags[0];
    let expected = alloc::format!("`{open}` before a call");
    markup.error(TagErrorKind::MalformedCall, 0, expected)
}
