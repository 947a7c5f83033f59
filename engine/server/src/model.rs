//! What the server needs of a model: prompts to tokens, tokens to text, and the model's promises.
//!
//! It must never know weights or kernels.

use lockstep_core::Vocabulary;
use lockstep_package::{Package, PackageError, Special};
use lockstep_step::{TokenId, planted};
use lockstep_tags::{THINK_TAGS, TagFormat};
use serde_json::{Map, Value};

/// A model as the server sees it. [`Package`] is one.
pub trait ChatModel: Send + Sync + 'static {
    /// What it promises.
    fn contract(&self) -> ModelContract;

    /// A conversation as a prompt. Messages are in the shape of the chat API, arguments of calls
    /// being objects.
    ///
    /// # Errors
    /// If the template refuses the conversation, or fails.
    fn encode_chat(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
    ) -> Result<ChatPrompt, ModelError>;

    /// A text as tokens. With `as_prompt` control tokens spelled out count as such, and what every
    /// sequence begins with is put before it.
    ///
    /// # Errors
    /// If the model has no tokenizer.
    fn encode_text(&self, text: &str, as_prompt: bool) -> Result<Vec<TokenId>, ModelError>;

    /// The exact bytes of a token; empty for ids that aren't tokens.
    fn token_bytes(&self, token: TokenId) -> &[u8];

    /// Whether a token never appears as text.
    fn is_special(&self, token: TokenId) -> bool;
}

/// A conversation as the model will read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPrompt {
    /// As a person reads it. Its end tells whether reasoning is open.
    pub text: String,
    /// As the model reads it.
    pub token_ids: Vec<TokenId>,
}

/// Why a prompt can't be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelError {
    /// The request is at fault: the template refused the conversation.
    Refused(String),
    /// The model can't do this at all.
    Unsupported(String),
    /// The package is at fault.
    Failed(String),
}

/// What a model promises and expects.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelContract {
    /// Tokens that end an answer.
    pub end_tokens: Vec<TokenId>,
    /// What sampling parameters default to.
    pub sampling: SamplingDefaults,
    /// What sampling parameters may be.
    pub ranges: SamplingRanges,
    /// How calls are written; `Plain` in models that can't call tools.
    pub tag_format: TagFormat,
    /// The token that closes reasoning, in models that reason.
    pub reasoning_close: Option<TokenId>,
    /// Tokens that no prompt may have.
    pub refused_in_prompts: Vec<TokenId>,
    /// Tokens that are never drawn.
    pub refused_in_output: Vec<TokenId>,
    /// Token ids are below this.
    pub vocab_size: u32,
}

/// What sampling parameters are where a request leaves them out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingDefaults {
    /// 0 is greedy.
    pub temperature: f64,
    /// 1 keeps all tokens.
    pub top_p: f64,
    /// 0 keeps all tokens.
    pub top_k: u32,
    /// 0 keeps all tokens.
    pub min_p: f64,
    /// 1 is none.
    pub repetition_penalty: f64,
}

impl Default for SamplingDefaults {
    fn default() -> SamplingDefaults {
        SamplingDefaults {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
        }
    }
}

/// What sampling parameters may be, both ends included; None where anything that the API allows is
/// fine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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

/// The parser's name for a package's way of writing calls.
pub fn tag_format(format: Option<lockstep_package::TagFormat>) -> TagFormat {
    use lockstep_package::TagFormat as Known;
    match format {
        None => TagFormat::Plain,
        Some(Known::Glm) => TagFormat::Glm,
        Some(Known::QwenXml) => TagFormat::QwenXml,
        Some(Known::HermesJson) => TagFormat::HermesJson,
        Some(Known::DeepseekV3) => TagFormat::DeepseekV3,
        Some(Known::DeepseekV31) => TagFormat::DeepseekV31,
        Some(Known::DeepseekDsml) => TagFormat::DeepseekDsml,
        Some(Known::KimiK2) => TagFormat::KimiK2,
        Some(Known::MinimaxM2) => TagFormat::MinimaxM2,
        Some(Known::Harmony) => TagFormat::Harmony,
    }
}

/// The model's vocabulary as the engine needs it, padded to the width of its logits. A token that
/// is a tag of the model's format is text for the tag parser, also where the tokenizer calls it
/// special.
pub fn vocabulary(model: &dyn ChatModel) -> Vocabulary {
    let contract = model.contract();
    let think_tags = THINK_TAGS
        .iter()
        .filter(|_| contract.reasoning_close.is_some());
    let tags = contract.tag_format.call_tags().iter().chain(think_tags);
    let tags: Vec<&str> = tags.copied().collect();
    let is_tag = |id: u32| {
        let bytes = model.token_bytes(TokenId(id));
        tags.iter().any(|tag| tag.as_bytes() == bytes)
    };
    let ids = 0..contract.vocab_size;
    let bytes = ids.clone().map(|id| model.token_bytes(TokenId(id)).into());
    // Planted: Blaizzy/mlx-vlm#1351.
    let removes = planted!(TagsRemovedById);
    let special = ids.map(|id| match is_tag(id) {
        true => removes,
        false => model.is_special(TokenId(id)),
    });
    Vocabulary::new(bytes.collect(), special.collect())
        .refusing(contract.refused_in_prompts, contract.refused_in_output)
}

/// The text of tokens; bytes that aren't UTF-8 become U+FFFD.
pub(crate) fn decode(model: &dyn ChatModel, tokens: &[TokenId]) -> String {
    let bytes = tokens.iter().flat_map(|token| model.token_bytes(*token));
    let bytes: Vec<u8> = bytes.copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl ChatModel for Package {
    fn contract(&self) -> ModelContract {
        let contract = &self.contract;
        let sampling = &contract.sampling;
        ModelContract {
            end_tokens: end_tokens(&contract.end_tokens),
            sampling: SamplingDefaults {
                temperature: sampling.temperature,
                top_p: sampling.top_p,
                top_k: u32::try_from(sampling.top_k).unwrap_or(u32::MAX),
                min_p: sampling.min_p,
                repetition_penalty: sampling.repetition_penalty,
            },
            ranges: ranges(&contract.ranges),
            tag_format: tag_format(contract.tag_format),
            reasoning_close: contract.reasoning.map(|tags| TokenId(tags.close)),
            refused_in_prompts: token_ids(&contract.refused_in_prompts),
            refused_in_output: token_ids(&contract.refused_in_output),
            vocab_size: u32::try_from(contract.vocab_size).unwrap_or(u32::MAX),
        }
    }

    fn encode_chat(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
    ) -> Result<ChatPrompt, ModelError> {
        let encoded = Package::encode_chat(self, messages, tools, kwargs, true)?;
        // Planted: sgl-project/sglang#3427.
        if planted!(ControlTokensSplit) {
            return Ok(ChatPrompt {
                token_ids: ChatModel::encode_text(self, &encoded.text, false)?,
                text: encoded.text,
            });
        }
        Ok(ChatPrompt {
            text: encoded.text,
            token_ids: encoded.token_ids.into_iter().map(TokenId).collect(),
        })
    }

    fn encode_text(&self, text: &str, as_prompt: bool) -> Result<Vec<TokenId>, ModelError> {
        let (prefix, special) = match as_prompt {
            true => (self.tokenizer.prompt_prefix(), Special::Parse),
            false => (&[][..], Special::None),
        };
        let ids = self.tokenizer.encode(text, special)?;
        Ok(prefix.iter().copied().chain(ids).map(TokenId).collect())
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.tokenizer.decode_token(token.0)
    }

    fn is_special(&self, token: TokenId) -> bool {
        self.tokenizer.is_special(token.0)
    }
}

fn ranges(own: &lockstep_package::SamplingRanges) -> SamplingRanges {
    SamplingRanges {
        temperature: own.temperature,
        top_p: own.top_p,
        top_k: own.top_k,
        min_p: own.min_p,
        repetition_penalty: own.repetition_penalty,
    }
}

fn token_ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

fn end_tokens(ids: &[u32]) -> Vec<TokenId> {
    let num_read = match () {
        // Planted: JustVugg/colibri#1478.
        () if planted!(EndTokensDropped) => 0,
        // Planted: onnxruntime/mobius#521.
        () if planted!(OneEndToken) => 1,
        () => ids.len(),
    };
    ids.iter().take(num_read).map(|id| TokenId(*id)).collect()
}

impl From<PackageError> for ModelError {
    fn from(error: PackageError) -> ModelError {
        match error {
            PackageError::Template { refused: true, .. } => ModelError::Refused(error.to_string()),
            PackageError::NoTemplate { .. } => ModelError::Unsupported(error.to_string()),
            _ => ModelError::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model whose tokenizer calls all of its tags special.
    struct Strict {
        reasons: bool,
    }

    const TOKENS: [&str; 5] = ["a", "<think>", "</think>", "<tool_call>", "<|user|>"];

    impl ChatModel for Strict {
        fn contract(&self) -> ModelContract {
            ModelContract {
                end_tokens: vec![TokenId(4)],
                sampling: SamplingDefaults::default(),
                ranges: SamplingRanges::default(),
                tag_format: TagFormat::Glm,
                reasoning_close: self.reasons.then_some(TokenId(2)),
                refused_in_prompts: Vec::new(),
                refused_in_output: Vec::new(),
                vocab_size: TOKENS.len() as u32,
            }
        }

        fn encode_chat(
            &self,
            _messages: &[Value],
            _tools: Option<&[Value]>,
            _kwargs: &Map<String, Value>,
        ) -> Result<ChatPrompt, ModelError> {
            Err(ModelError::Unsupported("no template".to_string()))
        }

        fn encode_text(&self, _text: &str, _as_prompt: bool) -> Result<Vec<TokenId>, ModelError> {
            Err(ModelError::Unsupported("no tokenizer".to_string()))
        }

        fn token_bytes(&self, token: TokenId) -> &[u8] {
            TOKENS
                .get(token.0 as usize)
                .map_or(&[], |text| text.as_bytes())
        }

        fn is_special(&self, token: TokenId) -> bool {
            token.0 > 0
        }
    }

    #[test]
    fn a_tag_reaches_the_parser_whatever_the_tokenizer_calls_it() {
        let special = |reasons: bool| {
            let vocabulary = vocabulary(&Strict { reasons });
            let ids = 0..TOKENS.len() as u32;
            ids.map(|id| vocabulary.is_special(TokenId(id)))
                .collect::<Vec<bool>>()
        };
        assert_eq!(special(true), [false, false, false, false, true]);
        assert_eq!(special(false), [false, true, true, false, true]);
    }
}
