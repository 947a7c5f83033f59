//! What is asked of the engine for one sequence, and why it may refuse. No word of any API is here.

use crate::Speculation;
use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt;
use lockstep_step::{Matcher, SamplingParams, TokenId};
use lockstep_tags::ParserOptions;

/// One stream of tokens to generate. A client's request with `n = 2` is two of these, with seeds of
/// their own.
pub struct Request {
    /// The prompt, at least one token.
    pub prompt: Vec<TokenId>,
    /// How tokens are drawn, the seed filled in and each value in its range.
    pub sampling: SamplingParams,
    /// The most tokens of output, at least 1. The output also ends where the engine can hold no longer
    /// sequence.
    pub max_tokens: u32,
    /// Tokens that end the output and stay invisible. Empty if the end is to be ignored.
    pub end_tokens: Vec<TokenId>,
    /// Searched in content only, never in reasoning or in a call. The output is cut before the match.
    pub stop_strings: Vec<String>,
    /// How the text is read. `TagFormat::Plain` without reasoning passes it through.
    pub tags: ParserOptions,
    /// A constraint on the output. It also decides where end tokens are allowed.
    pub matcher: Option<Box<dyn Matcher>>,
    /// A limit on reasoning.
    pub reasoning: Option<ReasoningBudget>,
    /// What drafts for it; None for what the engine does by itself. It changes speed and never output.
    pub speculation: Option<Speculation>,
    /// Whether each token is reported, with its log-probabilities and digest.
    pub token_events: bool,
    /// Only requests of the same salt share what they computed. It changes speed and never output.
    pub cache_salt: String,
}

/// When as many reasoning tokens were drawn and reasoning is still open, it is closed by force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasoningBudget {
    /// Reasoning tokens that are drawn freely.
    pub max_tokens: u32,
    /// The tokens that close reasoning; forced one after another, and counted as reasoning.
    pub close: Vec<TokenId>,
}

/// Which bound of the queue was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Waiting sequences.
    Requests,
    /// Tokens of waiting sequences.
    Tokens,
}

/// Why a request was not taken. Nothing of it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The prompt has no token.
    EmptyPrompt,
    /// `max_tokens` is 0.
    NoTokensWanted,
    /// A stop string is empty: it would match everywhere.
    EmptyStopString,
    /// A prompt token is outside the vocabulary.
    TokenOutOfRange {
        /// Its index in the prompt.
        idx: usize,
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab_size: u32,
    },
    /// The model refuses a token in prompts: it stands for what is no text.
    RefusedToken {
        /// Its index in the prompt.
        idx: usize,
        /// The token.
        token: TokenId,
    },
    /// The biased tokens do not ascend, or one is outside the vocabulary.
    BiasOutOfOrder {
        /// The first offending token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab_size: u32,
    },
    /// A sampling parameter is outside its range: a mistake of the caller, who checks ranges.
    BadSampling {
        /// The field.
        field: &'static str,
    },
    /// There is no room for the prompt and one token of output.
    PromptTooLong {
        /// Length of the prompt.
        prompt_tokens: u32,
        /// Tokens of output that were asked for.
        max_tokens: u32,
        /// The longest sequence that the engine can hold.
        limit: u32,
    },
    /// More at once than the queue can ever hold: no later try would help.
    NeverFits {
        /// What there is too much of.
        kind: QueueKind,
        /// How much was asked for at once.
        wanted: u64,
        /// How much can be taken while nothing else is there.
        limit: u64,
    },
    /// Too much is waiting already: worth another try later.
    QueueFull {
        /// What there is too much of.
        kind: QueueKind,
        /// How much is waiting.
        now: u64,
        /// How much may wait.
        limit: u64,
    },
}

impl Refusal {
    /// A stable name.
    pub fn kind(&self) -> &'static str {
        match self {
            Refusal::EmptyPrompt => "empty_prompt",
            Refusal::NoTokensWanted => "no_tokens_wanted",
            Refusal::EmptyStopString => "empty_stop_string",
            Refusal::TokenOutOfRange { .. } => "token_out_of_range",
            Refusal::RefusedToken { .. } => "refused_token",
            Refusal::BiasOutOfOrder { .. } => "bias_out_of_order",
            Refusal::BadSampling { .. } => "bad_sampling",
            Refusal::PromptTooLong { .. } => "prompt_too_long",
            Refusal::NeverFits { .. } => "never_fits",
            Refusal::QueueFull { .. } => "queue_full",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::EmptyPrompt => write!(f, "the prompt has no tokens"),
            Refusal::NoTokensWanted => write!(f, "max_tokens is 0, at least 1 is needed"),
            Refusal::EmptyStopString => write!(f, "a stop string is empty"),
            Refusal::TokenOutOfRange {
                idx,
                token,
                vocab_size,
            } => write!(
                f,
                "prompt token {idx} is {token}, the vocabulary has {vocab_size}"
            ),
            Refusal::RefusedToken { idx, token } => write!(
                f,
                "prompt token {idx} is {token}, which the model's contract refuses in prompts"
            ),
            Refusal::BiasOutOfOrder { token, vocab_size } => write!(
                f,
                "biased token {token} is out of order or past the vocabulary of {vocab_size}"
            ),
            Refusal::BadSampling { field } => write!(f, "{field} is outside its range"),
            Refusal::PromptTooLong {
                prompt_tokens,
                max_tokens,
                limit,
            } => write!(
                f,
                "the prompt has {prompt_tokens} tokens and {max_tokens} more were asked for; \
                 prompt and output together can have at most {limit}"
            ),
            Refusal::NeverFits {
                kind: QueueKind::Requests,
                wanted,
                limit,
            } => write!(
                f,
                "{wanted} sequences were asked for at once, and at most {limit} can run or wait"
            ),
            Refusal::NeverFits {
                kind: QueueKind::Tokens,
                wanted,
                limit,
            } => write!(
                f,
                "prompts of {wanted} tokens were sent at once, and no more than {limit} can wait"
            ),
            Refusal::QueueFull {
                kind: QueueKind::Requests,
                now,
                limit,
            } => write!(f, "{now} requests are waiting, at most {limit} may"),
            Refusal::QueueFull {
                kind: QueueKind::Tokens,
                now,
                limit,
            } => write!(f, "{now} tokens are waiting, at most {limit} may"),
        }
    }
}

impl core::error::Error for Refusal {}

impl Request {
    /// Refuses what no queue length can excuse. `len_max` is the longest sequence the engine can hold.
    pub(crate) fn check(&self, vocab_size: u32, len_max: u32) -> Result<(), Refusal> {
        if self.prompt.is_empty() {
            return Err(Refusal::EmptyPrompt);
        }
        if self.max_tokens == 0 {
            return Err(Refusal::NoTokensWanted);
        }
        if self.stop_strings.iter().any(String::is_empty) {
            return Err(Refusal::EmptyStopString);
        }
        if self.prompt.len() >= len_max as usize {
            return Err(Refusal::PromptTooLong {
                prompt_tokens: u32::try_from(self.prompt.len()).unwrap_or(u32::MAX),
                max_tokens: self.max_tokens,
                limit: len_max,
            });
        }
        let outside = |token: TokenId| token.0 >= vocab_size;
        if let Some(idx) = self.prompt.iter().position(|&token| outside(token)) {
            let token = self.prompt[idx];
            return Err(Refusal::TokenOutOfRange {
                idx,
                token,
                vocab_size,
            });
        }
        if let Some(field) = bad_field(&self.sampling) {
            return Err(Refusal::BadSampling { field });
        }
        let bias = &self.sampling.bias;
        let unordered = bias.windows(2).find(|pair| pair[0].0 >= pair[1].0);
        let offender = unordered.map(|pair| pair[1].0);
        let offender = offender.or(bias.iter().map(|b| b.0).find(|&token| outside(token)));
        match offender {
            Some(token) => Err(Refusal::BiasOutOfOrder { token, vocab_size }),
            None => Ok(()),
        }
    }
}

/// The first field that no sampler could work with.
fn bad_field(sampling: &SamplingParams) -> Option<&'static str> {
    let share = 0.0..=1.0;
    let fields = [
        (
            "temperature",
            (0.0..=f32::MAX).contains(&sampling.temperature),
        ),
        ("top_p", share.contains(&sampling.top_p)),
        ("min_p", share.contains(&sampling.min_p)),
        ("frequency_penalty", sampling.frequency_penalty.is_finite()),
        ("presence_penalty", sampling.presence_penalty.is_finite()),
        (
            "repetition_penalty",
            sampling.repetition_penalty.is_finite() && sampling.repetition_penalty > 0.0,
        ),
        ("bias", sampling.bias.iter().all(|bias| bias.1.is_finite())),
    ];
    fields
        .into_iter()
        .find(|field| !field.1)
        .map(|field| field.0)
}
