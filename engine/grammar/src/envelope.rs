//! How each format writes a call: which tokens open and close it, and the grammar of what stands between.
//! The opening tag is no part of that grammar: it is where the boundary hands over.

mod glm;
mod hermes_json;
mod qwen_xml;

use crate::constraint::{ConstraintError, Subject};
use crate::lark::Lark;
use crate::vocabulary::GrammarVocabulary;
use crate::{SchemaError, ToolParameters};
use lockstep_step::TokenId;
use lockstep_tags::TagFormat;
use serde_json::Value;

/// A tool, its schema read.
pub(crate) struct DeclaredTool {
    /// Its place in the request.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) parameters: ToolParameters,
}

/// How calls of one format are written with one vocabulary.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    format: TagFormat,
    /// The token that opens a call.
    pub(crate) open: TokenId,
    /// The token that ends it, and stands nowhere else in it.
    pub(crate) close: TokenId,
    /// Further tags inside, in the order of [`Envelope::inner_tags`].
    inner: Vec<TokenId>,
}

impl Envelope {
    /// The envelope of a format.
    ///
    /// # Errors
    /// If no grammar is known for the format, or the vocabulary has no token for one of its tags.
    pub(crate) fn new(
        format: TagFormat,
        vocabulary: &GrammarVocabulary,
    ) -> Result<Envelope, ConstraintError> {
        let inner = Envelope::inner_tags(format)?;
        let token = |tag: &str| {
            vocabulary.tag(tag).ok_or_else(|| {
                let message = format!(
                    "the model's vocabulary has no token `{tag}`, \
                     which calls of format {format} need under a grammar"
                );
                ConstraintError::new(Subject::Model, "unsupported_model", message)
            })
        };
        Ok(Envelope {
            format,
            open: token("<tool_call>")?,
            close: token("</tool_call>")?,
            inner: inner
                .iter()
                .map(|tag| token(tag))
                .collect::<Result<_, _>>()?,
        })
    }

    fn inner_tags(format: TagFormat) -> Result<&'static [&'static str], ConstraintError> {
        match format {
            TagFormat::Glm => Ok(&glm::TAGS),
            TagFormat::QwenXml | TagFormat::HermesJson => Ok(&[]),
            TagFormat::Plain
            | TagFormat::DeepseekV3
            | TagFormat::DeepseekV31
            | TagFormat::DeepseekDsml
            | TagFormat::KimiK2
            | TagFormat::MinimaxM2
            | TagFormat::Harmony => {
                let message = format!(
                    "calls of format {format} can't be held to a grammar, \
                     expected a model that writes glm, qwen_xml or hermes_json"
                );
                Err(ConstraintError::new(
                    Subject::Model,
                    "unsupported_model",
                    message,
                ))
            }
        }
    }

    /// What opens a call for a reader of text, and so may not be spelled out where no call may stand.
    pub(crate) fn openers(&self) -> &'static [&'static str] {
        match self.format {
            // A declared function opens a call by itself.
            TagFormat::QwenXml => &["<tool_call>", "<function="],
            _ => &["<tool_call>"],
        }
    }

    /// What would end a value for a reader of text, and so may not be spelled out inside a call; the tokens
    /// that are these tags; and whether a tag is fine after a line feed, where the grammar itself writes it.
    pub(crate) fn reserved(&self) -> (Vec<&'static str>, Vec<TokenId>, bool) {
        let structural = [&[self.open, self.close], &self.inner[..]].concat();
        match self.format {
            TagFormat::Glm => (glm::RESERVED.to_vec(), structural, false),
            TagFormat::QwenXml => (qwen_xml::RESERVED.to_vec(), structural, true),
            _ => (Vec::new(), structural, false),
        }
    }

    /// The grammar of one call to any of these tools, from behind the opening tag through the closing one.
    ///
    /// # Errors
    /// If a tool can't be written in this format.
    pub(crate) fn call(&self, tools: &[DeclaredTool]) -> Result<Lark, ConstraintError> {
        let mut lark = Lark::default();
        let mut calls = Vec::new();
        for (idx, tool) in tools.iter().enumerate() {
            let rule = format!("call_{idx}");
            let body = match self.format {
                TagFormat::Glm => glm::call(self, idx, tool, &mut lark),
                TagFormat::QwenXml => qwen_xml::call(self, idx, tool, &mut lark),
                _ => Ok(hermes_json::call(self, idx, tool, &mut lark)),
            };
            let body =
                body.map_err(|error| ConstraintError::schema(Subject::Tool(tool.index), error))?;
            lark.rule(&rule, &body);
            calls.push(rule);
        }
        lark.rule(CALL_RULE, &calls.join(" | "));
        Ok(lark)
    }
}

/// The expression that the schema reader gives for a string without any bound.
const ANY_TEXT: &str = "/(?s:.*)/";

/// The rule of a call.
pub(crate) const CALL_RULE: &str = "call";

/// Refuses a name that the format can't carry: one with a character that would end it.
fn checked_name<'a>(name: &'a str, what: &str, bad: &[char]) -> Result<&'a str, SchemaError> {
    let found = name
        .chars()
        .find(|c| bad.contains(c) || c.is_control() || c.is_whitespace());
    match found {
        None if !name.is_empty() => Ok(name),
        found => Err(SchemaError {
            path: String::new(),
            keyword: what.to_string(),
            problem: match found {
                Some(c) => {
                    format!("{name:?} has {c:?} in it, which the model's format can't write")
                }
                None => "is empty, expected at least one character".to_string(),
            },
        }),
    }
}

/// Refuses JSON that could only be written with a tag in it that ends the value: the masks keep such a tag from
/// being spelled out, so a text that needs it would never come to its end.
fn checked_json<'a>(
    document: &'a Value,
    parameter: &str,
    reserved: &[&str],
) -> Result<&'a Value, SchemaError> {
    match fixed_text_with(document, reserved) {
        None => Ok(document),
        Some((keyword, text)) => Err(SchemaError {
            path: format!(
                "/properties/{}",
                parameter.replace('~', "~0").replace('/', "~1")
            ),
            keyword: keyword.to_string(),
            problem: format!(
                "{text:?} has one of {} in it, which would end the value in the model's format",
                reserved.join(", ")
            ),
        }),
    }
}

/// The first text of a schema that is written as it stands and has one of these in it, and its keyword.
pub(crate) fn fixed_text_with<'a>(
    schema: &'a Value,
    reserved: &[&str],
) -> Option<(&'static str, &'a str)> {
    let has = |text: &&'a str| reserved.iter().any(|tag| text.contains(tag));
    match schema {
        Value::Object(members) => members.iter().find_map(|(keyword, value)| {
            let fixed = |keyword| text_with(value, reserved).map(|text| (keyword, text));
            match keyword.as_str() {
                "const" => fixed("const"),
                "enum" => fixed("enum"),
                "properties" => {
                    let properties = value.as_object()?;
                    let key = properties.keys().map(String::as_str).find(has);
                    let inside = || {
                        let mut schemas = properties.values();
                        schemas.find_map(|schema| fixed_text_with(schema, reserved))
                    };
                    key.map(|key| ("properties", key)).or_else(inside)
                }
                _ => fixed_text_with(value, reserved),
            }
        }),
        Value::Array(items) => items
            .iter()
            .find_map(|item| fixed_text_with(item, reserved)),
        _ => None,
    }
}

/// The first text in a value, keys included, that has one of these in it.
fn text_with<'a>(value: &'a Value, reserved: &[&str]) -> Option<&'a str> {
    let has = |text: &&'a str| reserved.iter().any(|tag| text.contains(tag));
    match value {
        Value::String(text) => Some(text.as_str()).filter(has),
        Value::Array(items) => items.iter().find_map(|item| text_with(item, reserved)),
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            let key = Some(key.as_str()).filter(has);
            key.or_else(|| text_with(value, reserved))
        }),
        _ => None,
    }
}
