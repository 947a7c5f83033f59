//! One interface over the formats: when an opener starts a call, and how the call is read on.
//! The list of formats is closed; whatever differs between them stands in their own files.

use alloc::string::String;
use alloc::sync::Arc;

use crate::event::{Delivery, Ended, Sink, TagError};
use crate::format::TagFormat;
use crate::lexer::Lexeme;
use crate::markup::Markup;
use crate::opening::Lookahead;
use crate::schema::ToolSet;
use crate::{
    deepseek_dsml, deepseek_v3, deepseek_v31, glm, hermes_json, json_section, kimi_k2, minimax_m2,
    qwen_xml, xml_section,
};

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
    QwenWrapped(Lookahead),
    QwenBare(qwen_xml::BareFunction),
    Hermes(Lookahead),
}

impl Opening {
    /// Whether the opener certainly starts a call if the model stops by itself right here.
    pub(crate) fn is_call_at_end(&self, tools: &ToolSet) -> bool {
        match self {
            Opening::Glm(opening) => opening.name_is_declared(tools),
            Opening::QwenWrapped(_) | Opening::QwenBare(_) | Opening::Hermes(_) => false,
        }
    }

    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>, tools: &ToolSet) -> Verdict {
        match self {
            Opening::Glm(opening) => opening.take(lexeme, tools),
            Opening::QwenWrapped(opening) | Opening::Hermes(opening) => opening.take(lexeme),
            Opening::QwenBare(opening) => opening.take(lexeme, tools),
        }
    }

    /// The text so far, from the opener on.
    pub(crate) fn held(&self) -> &str {
        match self {
            Opening::Glm(opening) => &opening.held,
            Opening::QwenWrapped(opening) | Opening::Hermes(opening) => &opening.held,
            Opening::QwenBare(opening) => &opening.held,
        }
    }

    /// A call starts at the opener, whose offset in the output is given.
    pub(crate) fn begin(
        self,
        offset: usize,
        bytes_max: usize,
        setting: &mut Setting<'_, '_>,
    ) -> Result<Call, TagError> {
        Ok(match self {
            Opening::Glm(opening) => Call::Glm(glm::Call::begin(opening, offset, setting)?),
            Opening::QwenWrapped(opening) => {
                let markup = Markup::new(opening.held, offset, bytes_max);
                Call::QwenXml(qwen_xml::Call::wrapped(markup))
            }
            Opening::QwenBare(opening) => {
                let held = &opening.held;
                Call::QwenXml(qwen_xml::Call::bare(held, offset, bytes_max, setting)?)
            }
            Opening::Hermes(opening) => {
                let markup = Markup::new(opening.held, offset, bytes_max);
                Call::HermesJson(hermes_json::Call::new(markup))
            }
        })
    }
}

/// What a tag in the flow of text is.
pub(crate) enum Opener {
    /// No opener of this format.
    None,
    /// What follows decides.
    Undecided(Opening),
    /// A call, or a section of calls, certainly begins.
    Certain(Section),
}

/// A section whose opener is unmistakable.
pub(crate) enum Section {
    Json(&'static json_section::Spelling),
    /// A block, and the tag that closes it.
    Xml(&'static xml_section::Block, &'static str),
    /// A call outside of any block, which is an error.
    BareInvoke(&'static xml_section::Block),
}

impl Section {
    fn of(format: TagFormat, tag: &str) -> Option<Section> {
        let json = |section: &'static json_section::Spelling| {
            (tag == section.open).then_some(Section::Json(section))
        };
        let xml = |block: &'static xml_section::Block| {
            let close = block.close_of(tag)?;
            Some(Section::Xml(block, close))
        };
        match format {
            TagFormat::DeepseekV3 => json(&deepseek_v3::SECTION),
            TagFormat::DeepseekV31 => json(&deepseek_v31::SECTION),
            TagFormat::KimiK2 => json(&kimi_k2::SECTION),
            TagFormat::MinimaxM2 => xml(&minimax_m2::BLOCK),
            TagFormat::DeepseekDsml if tag == deepseek_dsml::INVOKE_OPEN => {
                Some(Section::BareInvoke(&deepseek_dsml::BLOCK))
            }
            TagFormat::DeepseekDsml => xml(&deepseek_dsml::BLOCK),
            _ => None,
        }
    }

    /// The section begins with this markup, its opener.
    pub(crate) fn begin(self, markup: Markup) -> Result<Call, TagError> {
        match self {
            Section::Json(section) => Ok(Call::Json(json_section::Section::new(section, markup))),
            Section::Xml(block, close) => {
                Ok(Call::Xml(xml_section::Section::new(block, close, markup)))
            }
            Section::BareInvoke(block) => Err(xml_section::bare_invoke(block, &markup)),
        }
    }
}

impl Opener {
    /// `in_content` tells content from reasoning.
    pub(crate) fn of(format: TagFormat, tag: &str, in_content: bool, bytes_max: usize) -> Opener {
        match (format, tag) {
            (TagFormat::Glm, glm::CALL_OPEN) => {
                Opener::Undecided(Opening::Glm(glm::Opening::new(bytes_max)))
            }
            (TagFormat::QwenXml, qwen_xml::CALL_OPEN) => {
                Opener::Undecided(Opening::QwenWrapped(qwen_xml::wrapped(bytes_max)))
            }
            (TagFormat::QwenXml, qwen_xml::FUNCTION_OPEN) if in_content => {
                Opener::Undecided(Opening::QwenBare(qwen_xml::BareFunction::new()))
            }
            (TagFormat::HermesJson, hermes_json::CALL_OPEN) => {
                Opener::Undecided(Opening::Hermes(hermes_json::opening(bytes_max)))
            }
            _ => Section::of(format, tag).map_or(Opener::None, Opener::Certain),
        }
    }
}

/// What a lexeme did to a call or to a section of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes on.
    Inside,
    /// A call is whole, its section goes on.
    Called,
    /// The section is over; what came since its last call is layout.
    Closed,
    /// The call is whole, and nothing of it is left to come.
    Ended,
    /// The call is whole and had no opener of its own: a closer without one may follow.
    EndedBare,
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

    /// What the end of the output would be right here, where it may end at all.
    fn may_end(&self, _ended: Ended) -> Option<Step> {
        None
    }

    /// Says the end of a call that is whole but for a closer that may be missing.
    fn end(&mut self, _sink: &mut Sink<'_>) {}

    /// The tag that has to come before the output may end.
    fn closer(&self) -> &'static str;
}

/// A call, or a section of calls, that has certainly begun.
pub(crate) enum Call {
    Glm(glm::Call),
    QwenXml(qwen_xml::Call),
    HermesJson(hermes_json::Call),
    Json(json_section::Section),
    Xml(xml_section::Section),
}

impl Call {
    fn reader(&mut self) -> &mut dyn ReadCall {
        match self {
            Call::Glm(call) => call,
            Call::QwenXml(call) => call,
            Call::HermesJson(call) => call,
            Call::Json(section) => section,
            Call::Xml(section) => section,
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

    /// The output is over, `held` being the start of a tag that never came whole. Gives what the
    /// end is where the output may end here, and else `None`.
    pub(crate) fn finish(
        &mut self,
        held: &str,
        ended: Ended,
        setting: &mut Setting<'_, '_>,
    ) -> Result<Option<Step>, TagError> {
        let reader = self.reader();
        let Some(step) = reader.may_end(ended) else {
            return Ok(None);
        };
        if !held.is_empty() && ended == Ended::Eos {
            // Such text is as wrong here as any other.
            reader.take(Lexeme::Text(held), setting)?;
            return Ok(None);
        }
        reader.end(setting.sink);
        Ok(Some(step))
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
