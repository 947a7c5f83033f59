//! Qwen3-Coder and Qwen3.5 to 3.8: `<tool_call>`, then `<function=` with `<parameter=` values.
//! Only the outer `<tool_call>` tags may be missing; every inner tag has to be there.

use alloc::string::String;

use crate::call::{ReadCall, Setting, Step, Verdict};
use crate::event::{Ended, Sink, TagError};
use crate::json::is_blank;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::opening::Lookahead;
use crate::schema::ToolSet;
use crate::types::Dialect;
use crate::xml_invoke::{Invoke, Spelling};
use crate::xml_values::{Layout, Written};

pub(crate) const CALL_OPEN: &str = "<tool_call>";
pub(crate) const CALL_CLOSE: &str = "</tool_call>";
pub(crate) const FUNCTION_OPEN: &str = "<function=";

static SPELLING: Spelling = Spelling {
    invoke_open: FUNCTION_OPEN,
    name_end: ">",
    invoke_close: "</function>",
    param_open: "<parameter=",
    key_ends: &[(">", Written::Untyped)],
    param_close: "</parameter>",
    layout: Layout::OneLineFeed,
    dialect: Some(Dialect::Python),
    next: "`<parameter=` or `</function>`",
};

/// The tags that have meaning when tools are offered.
pub(crate) const CALL_TAGS: [&str; 6] = [
    CALL_OPEN,
    CALL_CLOSE,
    FUNCTION_OPEN,
    "</function>",
    "<parameter=",
    "</parameter>",
];
/// Tokens that end a turn.
pub(crate) const STOPS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// A `<tool_call>` that starts a call if a function, or what is surely meant as a call, follows.
pub(crate) fn wrapped(bytes_max: usize) -> Lookahead {
    let starts = |lexeme: Lexeme<'_>| match lexeme {
        Lexeme::Tag(tag) => matches!(tag, FUNCTION_OPEN | CALL_CLOSE),
        Lexeme::Text(text) => text.starts_with('{'),
    };
    Lookahead::new(CALL_OPEN, starts, bytes_max)
}

/// A `<function=` without its wrapper: it starts a call if the name of an offered tool follows.
pub(crate) struct BareFunction {
    pub(crate) held: String,
}

impl BareFunction {
    pub(crate) fn new() -> BareFunction {
        BareFunction {
            held: FUNCTION_OPEN.into(),
        }
    }

    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>, tools: &ToolSet) -> Verdict {
        let Lexeme::Text(text) = lexeme else {
            return Verdict::Text(0);
        };
        for (i, c) in text.char_indices() {
            let name = &self.held[FUNCTION_OPEN.len()..];
            if c == '>' && tools.contains(name) {
                return Verdict::Call(i);
            }
            let may_become = |tool: &str| {
                tool.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(c))
            };
            if !tools.names().any(may_become) {
                return Verdict::Text(i);
            }
            self.held.push(c);
        }
        Verdict::Undecided
    }
}

/// Where inside a call the parser stands.
enum Place {
    /// After `<tool_call>`.
    BeforeFunction,
    Function(Invoke),
    /// After `</function>`: the call is whole, if nothing but its closer follows.
    AfterFunction(Invoke),
}

/// A call that has certainly begun.
pub(crate) struct Call {
    markup: Markup,
    is_wrapped: bool,
    place: Place,
}

impl Call {
    /// Takes over after `<tool_call>` and blanks.
    pub(crate) fn wrapped(markup: Markup) -> Call {
        Call {
            markup,
            is_wrapped: true,
            place: Place::BeforeFunction,
        }
    }

    /// Takes over after `<function=` and the name of an offered tool.
    pub(crate) fn bare(
        held: &str,
        offset: usize,
        bytes_max: usize,
        setting: &mut Setting<'_, '_>,
    ) -> Result<Call, TagError> {
        let mut markup = Markup::new(FUNCTION_OPEN.into(), offset, bytes_max);
        let mut function = Invoke::new(&SPELLING, &markup);
        let name = Lexeme::Text(&held[FUNCTION_OPEN.len()..]);
        function.take(name, &mut markup, setting)?;
        Ok(Call {
            markup,
            is_wrapped: false,
            place: Place::Function(function),
        })
    }

    fn take_before(&mut self, lexeme: Lexeme<'_>) -> Result<Step, TagError> {
        const EXPECTED: &str = "`<function=`";
        match lexeme {
            Lexeme::Tag(FUNCTION_OPEN) => {
                self.markup.push(FUNCTION_OPEN);
                self.place = Place::Function(Invoke::new(&SPELLING, &self.markup));
                Ok(Step::Inside)
            }
            Lexeme::Tag(tag) => Err(self.markup.refuse(tag, EXPECTED)),
            Lexeme::Text(text) => match text.find(|c| !is_blank(c)) {
                Some(at) => Err(self.markup.refuse_char(text, at, EXPECTED)),
                None => {
                    self.markup.push(text);
                    Ok(Step::Inside)
                }
            },
        }
    }

    fn take_after(
        &mut self,
        lexeme: Lexeme<'_>,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(usize, Step), TagError> {
        const EXPECTED: &str = "`</tool_call>`";
        match lexeme {
            Lexeme::Tag(CALL_CLOSE) => {
                self.markup.push(CALL_CLOSE);
                self.end(setting.sink);
                Ok((CALL_CLOSE.len(), Step::Ended))
            }
            Lexeme::Tag(CALL_OPEN | FUNCTION_OPEN) => {
                self.end(setting.sink);
                Ok((0, Step::Ended))
            }
            Lexeme::Tag(tag) => Err(self.markup.refuse(tag, EXPECTED)),
            Lexeme::Text(text) => match text.find(|c| !is_blank(c)) {
                Some(at) => Err(self.markup.refuse_char(text, at, EXPECTED)),
                None => {
                    self.markup.push(text);
                    Ok((text.len(), Step::Inside))
                }
            },
        }
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
        let taken = lexeme.as_str().len();
        let function = match &mut self.place {
            Place::BeforeFunction => return Ok((taken, self.take_before(lexeme)?)),
            Place::AfterFunction(_) => return self.take_after(lexeme, setting),
            Place::Function(function) => function,
        };
        if !function.take(lexeme, &mut self.markup, setting)? {
            return Ok((taken, Step::Inside));
        }
        if !self.is_wrapped {
            function.end(setting.sink);
            return Ok((taken, Step::EndedBare));
        }
        if let Place::Function(function) =
            core::mem::replace(&mut self.place, Place::BeforeFunction)
        {
            self.place = Place::AfterFunction(function);
        }
        Ok((taken, Step::Inside))
    }

    fn may_end(&self, _ended: Ended) -> Option<Step> {
        matches!(self.place, Place::AfterFunction(_)).then_some(Step::Ended)
    }

    fn end(&mut self, sink: &mut Sink<'_>) {
        if let Place::AfterFunction(function) = &mut self.place {
            function.end(sink);
        }
    }

    fn closer(&self) -> &'static str {
        match self.place {
            Place::AfterFunction(_) => CALL_CLOSE,
            _ => SPELLING.invoke_close,
        }
    }
}

#[cfg(test)]
#[path = "qwen_xml_tests.rs"]
mod tests;
