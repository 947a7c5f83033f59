//! A backend without a model: it answers a plan at once, from a text that everybody can compute. It must
//! never be part of what is measured.

use lockstep_core::{Request, Vocabulary};
use lockstep_step::{
    Digest, Draw, SamplingParams, SeqOutput, SeqPlan, StepOutput, StepPlan, TokenId,
};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use std::sync::Arc;

/// Tokens that exist.
pub const VOCAB_SIZE: u32 = 32_768;

/// The shortest prompt and the longest; sequences have all lengths in between.
pub const PROMPT_LEN: (u64, u64) = (512, 1024);

/// Tokens at the beginning that all texts have in common, as a system prompt is.
pub const NUM_COMMON: u64 = 256;

/// A text says the same again after so many tokens.
const PERIOD: u64 = 96;

/// One token in so many is another than the last time: that is where drafts fail.
const SURPRISE_EVERY: u64 = 8;

/// One token in so many of a recording is wrong, at random places.
const MISTAKE_EVERY: u64 = 4;

/// The token at a position of a sequence's text, whether it is prompt or output.
fn token(seq: u64, pos: u64) -> TokenId {
    let surprise = mix(seq, pos);
    let mixed = match (pos < NUM_COMMON, surprise.is_multiple_of(SURPRISE_EVERY)) {
        (true, _) => mix(u64::MAX, pos),
        (false, true) => surprise,
        (false, false) => mix(seq, pos % PERIOD),
    };
    TokenId((mixed >> 32) as u32 % VOCAB_SIZE)
}

fn mix(seq: u64, pos: u64) -> u64 {
    let mut mixed = (seq << 32 ^ pos).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Prompt tokens of a sequence.
pub fn prompt_len(seq: u64) -> u64 {
    let (min, max) = PROMPT_LEN;
    min + mix(seq, u64::MAX) % (max - min + 1)
}

/// A request whose output goes on for as long as it is asked.
pub fn request(seq: u64, max_tokens: u32) -> Request {
    Request {
        prompt: (0..prompt_len(seq)).map(|pos| token(seq, pos)).collect(),
        sampling: SamplingParams::greedy(),
        max_tokens,
        // Looked at, and never drawn.
        end_tokens: vec![TokenId(VOCAB_SIZE)],
        stop_strings: Vec::new(),
        tags: ParserOptions {
            format: TagFormat::Glm,
            starts_in_reasoning: false,
            reasoning: true,
            delivery: Delivery::Eager,
            tools: ToolSet::default().into(),
        },
        matcher: None,
        reasoning: None,
        speculation: None,
        token_events: false,
        cache_salt: String::new(),
    }
}

/// What a sequence will say, with mistakes.
pub fn recording(seq: u64, num_tokens: u32) -> Vec<TokenId> {
    let from = prompt_len(seq);
    let recorded = (from..from + u64::from(num_tokens)).map(|pos| {
        let token = token(seq, pos);
        let is_wrong = mix(!seq, pos).is_multiple_of(MISTAKE_EVERY);
        TokenId((token.0 + u32::from(is_wrong)) % VOCAB_SIZE)
    });
    recorded.collect()
}

/// Words of a few bytes, as in the vocabulary of a model.
pub fn vocabulary() -> Arc<Vocabulary> {
    let words = (0..VOCAB_SIZE).map(|idx| format!(" {idx:x}").into_bytes().into_boxed_slice());
    Arc::new(Vocabulary::new(words.collect(), Vec::new()))
}

/// Draws what the texts say, up to the first draft that they don't.
pub fn answer(plan: &StepPlan) -> StepOutput {
    let seqs = plan.seqs.iter().map(|seq| SeqOutput {
        seq: seq.seq,
        draws: Ok(draws(seq)),
    });
    StepOutput {
        step: plan.step,
        seqs: seqs.collect(),
    }
}

fn draws(seq: &SeqPlan) -> Vec<Draw> {
    let mut draws = Vec::with_capacity(seq.scored.len());
    for scored in &seq.scored {
        let next = scored.query_idx + 1;
        let drawn = token(seq.seq.0, u64::from(seq.start.0 + next));
        draws.push(Draw {
            token: drawn,
            digest: Digest(0),
            logprobs: None,
        });
        let draft = seq.query.get(next as usize);
        let is_right = |draft| draft == &lockstep_step::QueryToken::Known(drawn);
        if !draft.is_some_and(is_right) {
            break;
        }
    }
    draws
}
