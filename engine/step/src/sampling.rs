//! Sampling parameters as the engine understands them: defaults filled in, ranges already enforced.

use crate::TokenId;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How tokens of a sequence are drawn. Processing order: penalties and bias, grammar mask, temperature,
/// top-k, top-p, min-p, draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// 0 is greedy: the highest logit, ties to the lowest id.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 is off.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens whose probability reaches this; 1 is off.
    pub top_p: f32,
    /// Drop tokens less likely than this times the most likely one; 0 is off.
    pub min_p: f32,
    /// Subtracted from a logit once per earlier occurrence in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted from a logit if the token occurs in the output; 0 is off.
    pub presence_penalty: f32,
    /// Divides a positive logit, multiplies a negative one, of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Added to logits, in ascending order of token id, each token at most once.
    pub bias: Vec<(TokenId, f32)>,
    /// Keys the noise, together with the position.
    pub seed: u64,
    /// Return the log-probability of each drawn token and of this many most likely ones.
    pub top_logprobs: Option<u32>,
}

impl SamplingParams {
    /// Greedy decoding without any processing.
    pub fn greedy() -> SamplingParams {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty: 1.0,
            bias: Vec::new(),
            seed: 0,
            top_logprobs: None,
        }
    }

    /// Whether the draw depends on how often tokens occurred before.
    pub fn has_penalties(&self) -> bool {
        self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
            || self.repetition_penalty != 1.0
    }
}

/// How often a token occurred so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCount {
    /// The token.
    pub token: TokenId,
    /// Whether it stands in the prompt.
    pub in_prompt: bool,
    /// Occurrences in the output.
    pub output: u32,
}
