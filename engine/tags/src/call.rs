//! One interface over the formats: when an opener starts a call, and how the call is read on.
//! The list of formats is closed; whatever differs between them stands in their own files.

use alloc::string::String;
use alloc::sync::Arc;

use crate::event::{Delivery, Sink, TagError};
use crate::format::TagFormat;
use crate::glm;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::schema::ToolSet;

/// What a call is read with.
pub(crate) struct Setting<'a, 'b> {
    pub(crate) tools: &'a Arc<ToolSet>,
    pub(crate) delivery: Delivery,
    /// Number of the call that is read or comes next.
    pub(crate) index: u32,
    pub(crate) sink: &'a mut Sink<'b>,
}

/// What the next lexeme makes of an opener.
pub(crate) enum Verdict {
    /// Still open; all of the lexeme is held.
    Undecided,
    /// A call starts; this many bytes of the lexeme are held as part of it.
    Call(usize),
    /// The opener is plain text; this many bytes of the lexeme are held with it.
    Text(usize),
    /// The opener stutters: it is dropped, the lexeme is an opener of its own.
    Stutter,
}

/// An opener of which it is not certain yet whether a call follows.
pub(crate) enum Opening {
    Glm(glm::Opening),
}

impl Opening {
    /// Whether the opener certainly starts a call if the model stops by itself right here.
    pub(crate) fn is_call_at_end(&self, tools: &ToolSet) -> bool {
        match self {
            Opening::Glm(opening) => opening.name_is_declared(tools),
        }
    }

    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>, tools: &ToolSet) -> Verdict {
        match self {
            Opening::Glm(opening) => opening.take(lexeme, tools),
        }
    }

    /// The text so far, from the opener on.
    pub(crate) fn held(&self) -> &str {
        match self {
            Opening::Glm(opening) => &opening.held,
        }
    }

    /// A call starts at the opener, whose offset in the output is given.
    pub(crate) fn begin(
        self,
        offset: usize,
        setting: &mut Setting<'_, '_>,
    ) -> Result<Call, TagError> {
        match self {
            Opening::Glm(opening) => glm::Call::begin(opening, offset, setting).map(Call::Glm),
        }
    }
}

/// What a tag in the flow of text is.
pub(crate) enum Opener {
    /// No opener of this format.
    None,
    /// What follows decides.
    Undecided(Opening),
}

impl Opener {
    /// `in_content` tells content from reasoning.
    pub(crate) fn of(format: TagFormat, tag: &str, in_content: bool, bytes_max: usize) -> Opener {
        let _ = in_content;
        match (format, tag) {
            (TagFormat::Glm, glm::CALL_OPEN) => {
                Opener::Undecided(Opening::Glm(glm::Opening::new(bytes_max)))
            }
            _ => Opener::None,
        }
    }
}

/// What a lexeme did to a call or to a section of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes on.
    Inside,
    /// The call is whole, and nothing of it is left to come.
    Ended,
}

/// What each format's calls can do.
pub(crate) trait ReadCall {
    fn markup(&mut self) -> &mut Markup;

    /// Takes the next lexeme. Gives how many bytes of it belong to the call, which is all or none.
    fn take(
        &mut self,
        lexeme: Lexeme<'_>,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(usize, Step), TagError>;

    /// The tag that has to come before the output may end.
    fn closer(&self) -> &'static str;
}

/// A call, or a section of calls, that has certainly begun.
pub(crate) enum Call {
    Glm(glm::Call),
}

impl Call {
    fn reader(&mut self) -> &mut dyn ReadCall {
        match self {
            Call::Glm(call) => call,
        }
    }

    /// Takes the next lexeme, see [`ReadCall::take`]. No call grows past its limit.
    pub(crate) fn take(
        &mut self,
        lexeme: Lexeme<'_>,
        setting: &mut Setting<'_, '_>,
    ) -> Result<(usize, Step), TagError> {
        let reader = self.reader();
        let room = reader.markup().room();
        if room < lexeme.as_str().len() {
            // What still fits is read first, so that the outcome does not depend on the cut.
            if let Lexeme::Text(text) = lexeme {
                reader.take(
                    Lexeme::Text(&text[..text.floor_char_boundary(room)]),
                    setting,
                )?;
            }
            return Err(reader.markup().too_long());
        }
        reader.take(lexeme, setting)
    }

    /// Gives up the raw text since the last time this was called.
    pub(crate) fn settle(&mut self) -> String {
        self.reader().markup().settle()
    }

    /// The tag that has to come before the output may end.
    pub(crate) fn closer(&mut self) -> &'static str {
        self.reader().closer()
    }
}
