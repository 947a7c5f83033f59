//! What a package promises and expects besides its weights: where answers end, how to sample, which
//! tags it writes, which tokens nobody may say. A folder's is read out of its files; a one-file package has it
//! written down.
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
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
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

/// What sampling parameters may be, both ends included; None where anything that the API allows is fine. Files of
/// models have no such ranges; who packs a model may set them.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingRanges {
    /// Of the temperature.
    pub temperature: Option<(f64, f64)>,
    /// Of `top_p`.
    pub top_p: Option<(f64, f64)>,
    /// Of `top_k`; 0, which keeps all tokens, counts as the largest.
    pub top_k: Option<(u32, u32)>,
    /// Of `min_p`.
    pub min_p: Option<(f64, f64)>,
    /// Of the repetition penalty.
    pub repetition_penalty: Option<(f64, f64)>,
}

/// The tokens around a model's reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasoningTags {
    /// The id of `<think>`.
    pub open: u32,
    /// The id of `</think>`.
    pub close: u32,
}

/// A package's promises.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Tokens that end an answer, ascending.
    pub end_tokens: Vec<u32>,
    /// The token that a sequence begins with, where the files name one.
    pub bos_token: Option<u32>,
    /// What sampling parameters default to.
    pub sampling: SamplingDefaults,
    /// What sampling parameters may be.
    pub ranges: SamplingRanges,
    /// Tokens that no prompt may have, ascending: they stand for what is no text, such as an image.
    pub refused_in_prompts: Vec<u32>,
    /// Tokens that are never drawn, ascending.
    pub refused_in_output: Vec<u32>,
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
        let places = places_of_no_text(&config, model.vocab_size);
        let suppressed: &[&Fields<'_>] = match &generation {
            Some(generation) => &[generation],
            None => &[],
        };
        let mut refused_in_output = first(suppressed, "suppress_tokens", model.vocab_size)?;
        refused_in_output.extend(&places);
        refused_in_output.sort_unstable();
        refused_in_output.dedup();
        let reasons = template.is_some_and(|template| template.source().contains("think"));
        let reasoning = match (added("<think>"), added("</think>")) {
            (Some(open), Some(close)) if reasons => Some(ReasoningTags { open, close }),
            _ => None,
        };
        Ok(Contract {
            end_tokens,
            bos_token: bos.first().copied(),
            sampling: sampling(generation.as_ref())?,
            ranges: SamplingRanges::default(),
            refused_in_prompts: places,
            refused_in_output,
            tag_format: TagFormat::detect(template.map(ChatTemplate::source), |token| {
                added(token).is_some()
            }),
            reasoning,
            vocab_size: model.vocab_size,
            max_len: model.max_position_embeddings,
        })
    }
}

impl Contract {
    /// Fields that may be said otherwise when a model is packed.
    pub const CHANGEABLE: [&str; 6] = [
        "end_tokens",
        "sampling",
        "ranges",
        "tag_format",
        "refused_in_prompts",
        "refused_in_output",
    ];

    /// A contract that was written down, as `field` of `path`; each value in its range.
    pub(crate) fn of_json(
        path: &Path,
        field: &str,
        value: Value,
        model: &ModelConfig,
    ) -> Result<Contract, PackageError> {
        let wrong = |name: &str, value: String, expected: String| PackageError::Field {
            path: path.to_path_buf(),
            field: format!("{field}{name}"),
            value,
            expected,
        };
        let contract: Contract = serde_json::from_value(value).map_err(|error| {
            wrong(
                "",
                error.to_string(),
                "the fields that `lockstep inspect --json` shows".to_string(),
            )
        })?;
        for (name, own, config) in [
            ("vocab_size", contract.vocab_size, model.vocab_size),
            ("max_len", contract.max_len, model.max_position_embeddings),
        ] {
            if own != config {
                let expected = format!("{config}, as config.json says");
                return Err(wrong(&format!(".{name}"), own.to_string(), expected));
            }
        }
        let reasoning = contract.reasoning.map(|tags| vec![tags.open, tags.close]);
        for (name, ids) in [
            ("end_tokens", &contract.end_tokens),
            ("bos_token", &contract.bos_token.into_iter().collect()),
            ("reasoning", &reasoning.unwrap_or_default()),
            ("refused_in_prompts", &contract.refused_in_prompts),
            ("refused_in_output", &contract.refused_in_output),
        ] {
            let is_outside = |id: &&u32| **id as usize >= model.vocab_size;
            if let Some(id) = ids.iter().find(is_outside) {
                let expected = format!("token ids below vocab_size, {}", model.vocab_size);
                return Err(wrong(&format!(".{name}"), id.to_string(), expected));
            }
        }
        let ended = |id: &&u32| contract.end_tokens.contains(*id);
        if let Some(id) = contract.refused_in_output.iter().find(ended) {
            let expected = "no end token: no answer could end".to_string();
            return Err(wrong(".refused_in_output", id.to_string(), expected));
        }
        contract
            .check_sampling()
            .map_err(|(name, value, expected)| wrong(name, value, expected))?;
        Ok(contract.ordered())
    }

    fn ordered(mut self) -> Contract {
        for ids in [
            &mut self.end_tokens,
            &mut self.refused_in_prompts,
            &mut self.refused_in_output,
        ] {
            ids.sort_unstable();
            ids.dedup();
        }
        self
    }

    /// Each default inside of its range, and each range inside of what there is.
    fn check_sampling(&self) -> Result<(), (&'static str, String, String)> {
        let (own, ranges) = (&self.sampling, &self.ranges);
        // 0 keeps all tokens, as the largest number would.
        let counted = |k: f64| if k == 0.0 { f64::from(u32::MAX) } else { k };
        let top_k = ranges
            .top_k
            .map(|(least, most)| (counted(f64::from(least)), counted(f64::from(most))));
        let all = [
            (
                ".temperature",
                own.temperature,
                ranges.temperature,
                (0.0, 100.0),
            ),
            (".top_p", own.top_p, ranges.top_p, (f64::MIN_POSITIVE, 1.0)),
            (
                ".top_k",
                counted(own.top_k as f64),
                top_k,
                (1.0, f64::from(u32::MAX)),
            ),
            (".min_p", own.min_p, ranges.min_p, (0.0, 1.0)),
            (
                ".repetition_penalty",
                own.repetition_penalty,
                ranges.repetition_penalty,
                (0.01, 100.0),
            ),
        ];
        for (name, default, range, (min, max)) in all {
            let (least, most) = range.unwrap_or((min, max));
            if !(min <= least && least <= most && most <= max) {
                let expected = format!("a range within {min} and {max}, the lower end first");
                return Err((name, format!("[{least}, {most}]"), expected));
            }
            if !(least <= default && default <= most) {
                let expected = format!("a default within {least} and {most}");
                return Err((name, default.to_string(), expected));
            }
        }
        Ok(())
    }
}

/// Tokens that a multimodal checkpoint puts where an image, a video or a sound goes. This engine has none of these, so
/// that such a token would be read, or said, as if it were text.
fn places_of_no_text(config: &Fields<'_>, vocab_size: usize) -> Vec<u32> {
    let fields = [
        "image_token_id",
        "image_token_index",
        "video_token_id",
        "audio_token_id",
        "vision_start_token_id",
        "vision_end_token_id",
    ];
    let ids = fields
        .iter()
        .filter_map(|field| config.get(field)?.as_u64());
    // One past the vocabulary can be neither read nor said anyway.
    let ids = ids.filter(|id| *id < vocab_size as u64);
    let mut ids: Vec<u32> = ids.map(|id| id as u32).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
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
