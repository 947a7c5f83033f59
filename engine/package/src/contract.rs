//! What a package promises and expects besides its weights: where answers end, how to sample, which
//! tags it writes.
//!
//! It must never guess where a file says something, nor accept what a file says wrongly: a bad
//! value is an error that names the field.

use crate::config::{Fields, ModelConfig, object};
use crate::error::PackageError;
use crate::tag_format::TagFormat;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use serde_json::Value;
use std::path::Path;

/// What sampling parameters default to where a request leaves them out.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct SamplingDefaults {
    /// 0 is greedy.
    pub temperature: f64,
    /// In (0, 1]; 1 keeps all tokens.
    pub top_p: f64,
    /// 0 keeps all tokens.
    pub top_k: usize,
    /// In [0, 1]; 0 keeps all tokens.
    pub min_p: f64,
    /// 1 is none.
    pub repetition_penalty: f64,
}

/// The tokens around a model's reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ReasoningTags {
    /// The id of `<think>`.
    pub open: u32,
    /// The id of `</think>`.
    pub close: u32,
}

/// A package's promises.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Contract {
    /// Tokens that end an answer, ascending.
    pub end_tokens: Vec<u32>,
    /// The token that a sequence begins with, where the files name one.
    pub bos_token: Option<u32>,
    /// What sampling parameters default to.
    pub sampling: SamplingDefaults,
    /// How tool calls are written, where it is known.
    pub tag_format: Option<TagFormat>,
    /// The tags around reasoning, in models that reason.
    pub reasoning: Option<ReasoningTags>,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// The longest sequence in tokens, prompt and answer together.
    pub max_len: usize,
}

/// The files that a contract is read from; each may be missing.
pub(crate) struct ContractFiles<'a> {
    pub(crate) config: (&'a Path, &'a [u8]),
    pub(crate) generation: Option<(&'a Path, &'a [u8])>,
    /// The `eos_token` of the tokenizer's own settings.
    pub(crate) eos_token: Option<&'a str>,
}

impl Contract {
    pub(crate) fn read(
        files: &ContractFiles<'_>,
        model: &ModelConfig,
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
    ) -> Result<Contract, PackageError> {
        let config = object(files.config.0, files.config.1)?;
        let config = Fields {
            path: files.config.0,
            parent: "",
            map: &config,
        };
        let generation = match files.generation {
            Some((path, text)) => Some((path, object(path, text)?)),
            None => None,
        };
        let generation = generation.as_ref().map(|(path, map)| Fields {
            path,
            parent: "",
            map,
        });
        let sources: Vec<&Fields<'_>> = generation.iter().chain([&config]).collect();
        let mut end_tokens = first(&sources, "eos_token_id", model.vocab_size)?;
        if end_tokens.is_empty() {
            end_tokens.extend(files.eos_token.and_then(|token| tokenizer.token_id(token)));
        }
        end_tokens.sort_unstable();
        end_tokens.dedup();
        let bos = first(&sources, "bos_token_id", model.vocab_size)?;
        let added = |text: &str| {
            tokenizer
                .token_id(text)
                .filter(|id| tokenizer.is_added(*id))
        };
        let reasons = template.is_some_and(|template| template.source().contains("think"));
        let reasoning = match (added("<think>"), added("</think>")) {
            (Some(open), Some(close)) if reasons => Some(ReasoningTags { open, close }),
            _ => None,
        };
        Ok(Contract {
            end_tokens,
            bos_token: bos.first().copied(),
            sampling: sampling(generation.as_ref())?,
            tag_format: TagFormat::detect(template.map(ChatTemplate::source), |token| {
                added(token).is_some()
            }),
            reasoning,
            vocab_size: model.vocab_size,
            max_len: model.max_position_embeddings,
        })
    }
}

/// The token ids of the first source that has the field: one id, or a list.
fn first(
    sources: &[&Fields<'_>],
    field: &str,
    vocab_size: usize,
) -> Result<Vec<u32>, PackageError> {
    for source in sources {
        let Some(value) = source.get(field) else {
            continue;
        };
        let single = std::slice::from_ref(value);
        let items = value.as_array().map_or(single, Vec::as_slice);
        let mut ids = Vec::with_capacity(items.len());
        for item in items {
            match item.as_u64() {
                Some(id) if id < vocab_size as u64 => ids.push(id as u32),
                _ => {
                    let expected = format!("token ids below vocab_size, {vocab_size}");
                    return Err(source.error(field, item, &expected));
                }
            }
        }
        return Ok(ids);
    }
    Ok(Vec::new())
}

fn sampling(generation: Option<&Fields<'_>>) -> Result<SamplingDefaults, PackageError> {
    let mut sampling = SamplingDefaults {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        repetition_penalty: 1.0,
    };
    let Some(fields) = generation else {
        return Ok(sampling);
    };
    let number = |field: &str, min: f64, max: f64, default: f64| {
        Ok(fields.number_if(field, min, max)?.unwrap_or(default))
    };
    sampling.temperature = number("temperature", 0.0, 100.0, 1.0)?;
    sampling.top_p = number("top_p", f64::MIN_POSITIVE, 1.0, 1.0)?;
    sampling.min_p = number("min_p", 0.0, 1.0, 0.0)?;
    sampling.repetition_penalty = number("repetition_penalty", 0.01, 100.0, 1.0)?;
    if let Some(value) = fields.get("top_k") {
        // Some files say -1 for "all tokens".
        sampling.top_k = match value {
            Value::Number(number) if number.as_i64() == Some(-1) => 0,
            Value::Number(number) if number.as_u64().is_some_and(|k| k <= 1 << 22) => {
                number.as_u64().unwrap_or(0) as usize
            }
            other => return Err(fields.error("top_k", other, "a whole number from 0 to 4194304")),
        };
    }
    if fields.flag_if("do_sample")? == Some(false) {
        sampling.temperature = 0.0;
    }
    Ok(sampling)
}
