//! The tag formats by name, and the tags that each gives a meaning to.
//! It must never know how a call is read: that is in the file of each format.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::{deepseek_dsml, deepseek_v3, glm, harmony, hermes_json, kimi_k2, minimax_m2, qwen_xml};

/// How a model writes its reasoning and its tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagFormat {
    /// No tool tags; think tags may still have meaning.
    Plain,
    /// GLM-4.5 to GLM-5.3, newline and compact layout.
    Glm,
    /// Qwen3-Coder, Qwen3.5 and later: `<function=` and `<parameter=`.
    QwenXml,
    /// Hermes, Qwen2.5, Qwen3: a JSON object between `<tool_call>` tags.
    HermesJson,
    /// DeepSeek-V3 and R1: JSON in a Markdown fence between special tokens.
    DeepseekV3,
    /// DeepSeek-V3.1: JSON between special tokens.
    DeepseekV31,
    /// DeepSeek-V3.2 and V4: invocations in `｜DSML｜` tags.
    DeepseekDsml,
    /// Kimi K2 and its successors with the same template.
    KimiK2,
    /// MiniMax-M2 to M2.7: `<invoke name=` in a `<minimax:tool_call>` block.
    MinimaxM2,
    /// gpt-oss: messages with a channel and a recipient.
    Harmony,
}

impl TagFormat {
    /// All formats, in the order they are listed to users.
    pub const ALL: [TagFormat; 10] = [
        TagFormat::Plain,
        TagFormat::Glm,
        TagFormat::QwenXml,
        TagFormat::HermesJson,
        TagFormat::DeepseekV3,
        TagFormat::DeepseekV31,
        TagFormat::DeepseekDsml,
        TagFormat::KimiK2,
        TagFormat::MinimaxM2,
        TagFormat::Harmony,
    ];

    /// The name in flags, packages and case files.
    pub fn as_str(self) -> &'static str {
        match self {
            TagFormat::Plain => "none",
            TagFormat::Glm => "glm",
            TagFormat::QwenXml => "qwen_xml",
            TagFormat::HermesJson => "hermes_json",
            TagFormat::DeepseekV3 => "deepseek_v3",
            TagFormat::DeepseekV31 => "deepseek_v31",
            TagFormat::DeepseekDsml => "deepseek_dsml",
            TagFormat::KimiK2 => "kimi_k2",
            TagFormat::MinimaxM2 => "minimax_m2",
            TagFormat::Harmony => "harmony",
        }
    }

    /// The tags that have meaning where tools are offered; harmony's always have. A token of this
    /// text must reach the parser, also where the tokenizer calls it special.
    pub fn call_tags(self) -> &'static [&'static str] {
        match self {
            TagFormat::Glm => &glm::CALL_TAGS,
            TagFormat::QwenXml => &qwen_xml::CALL_TAGS,
            TagFormat::HermesJson => &hermes_json::CALL_TAGS,
            TagFormat::DeepseekV3 | TagFormat::DeepseekV31 => &deepseek_v3::CALL_TAGS,
            TagFormat::DeepseekDsml => &deepseek_dsml::CALL_TAGS,
            TagFormat::KimiK2 => &kimi_k2::CALL_TAGS,
            TagFormat::MinimaxM2 => &minimax_m2::CALL_TAGS,
            TagFormat::Harmony => &harmony::TAGS,
            TagFormat::Plain => &[],
        }
    }

    /// Tokens that end a turn: spelled at the very end of the text they are no text.
    pub(crate) fn stops(self) -> &'static [&'static str] {
        match self {
            TagFormat::Glm => &glm::STOPS,
            TagFormat::QwenXml => &qwen_xml::STOPS,
            TagFormat::HermesJson => &hermes_json::STOPS,
            TagFormat::DeepseekV3 | TagFormat::DeepseekV31 | TagFormat::DeepseekDsml => {
                &deepseek_v3::STOPS
            }
            TagFormat::KimiK2 => &kimi_k2::STOPS,
            TagFormat::MinimaxM2 => &minimax_m2::STOPS,
            TagFormat::Plain | TagFormat::Harmony => &[],
        }
    }
}

impl fmt::Display for TagFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A format name that no parser has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(
    /// The name as it was given.
    pub String,
);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown tag format `{}`, expected one of:", self.0)?;
        TagFormat::ALL
            .iter()
            .try_for_each(|format| write!(f, " {format}"))
    }
}

impl core::error::Error for UnknownFormat {}

impl FromStr for TagFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = TagFormat::ALL
            .into_iter()
            .find(|format| format.as_str() == name);
        found.ok_or_else(|| UnknownFormat(name.into()))
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
