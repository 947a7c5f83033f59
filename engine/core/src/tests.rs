//! The engine over the hash model: cases one by one, and the law under random interleavings.

pub(crate) mod automaton;
mod canary;
mod cases;
mod laws;
mod prefixes;
mod shorter;
mod turns;

use crate::*;
use alloc::{boxed::Box, string::String, sync::Arc, vec, vec::Vec};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig};
use lockstep_step::{
    BackendLimits, Bitmask, Matcher, MatcherError, SamplingParams, SeqId, TokenId,
};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};

/// Ends an output.
const END: TokenId = TokenId(0);
/// Special, and never in place.
const CONTROL: TokenId = TokenId(1);
const THINK_OPEN: TokenId = TokenId(2);
const THINK_CLOSE: TokenId = TokenId(3);
/// Makes all later logits of its sequence NaN.
const POISON: TokenId = TokenId(47);
const VOCAB_SIZE: u32 = 48;

fn vocabulary() -> Arc<Vocabulary> {
    let mut bytes: Vec<Box<[u8]>> = vec![
        Box::from(&b"<|end|>"[..]),
        Box::from(&b"<|control|>"[..]),
        Box::from(&b"<think>"[..]),
        Box::from(&b"</think>"[..]),
        // Halves of a character, and bytes that are none.
        Box::from(&b"\xe2"[..]),
        Box::from(&b"\x82\xac"[..]),
        Box::from(&b"\xff"[..]),
    ];
    let words = [&b"a"[..], b"b", b"ab", b"ba", b"<", b" "];
    for idx in bytes.len()..VOCAB_SIZE as usize {
        bytes.push(Box::from(words[idx % words.len()]));
    }
    Arc::new(Vocabulary::new(bytes, vec![true, true]))
}

fn limits() -> BackendLimits {
    BackendLimits {
        vocab_size: VOCAB_SIZE,
        num_blocks: 16,
        num_rows: 16,
        seq_len_max: 512,
        query_tokens_max: 1024,
    }
}

fn config() -> EngineConfig {
    EngineConfig {
        checked: true,
        ..EngineConfig::default()
    }
}

fn engine(config: EngineConfig, limits: BackendLimits) -> Engine {
    Engine::new(config, limits, vocabulary()).expect("the limits are fine")
}

fn model(limits: BackendLimits) -> Fingerprint {
    let mut config = FingerprintConfig::new(limits);
    config.bias = vec![
        (END, 1.0),
        (THINK_OPEN, 1.5),
        (THINK_CLOSE, 1.5),
        (POISON, -4.5),
    ];
    config.poison = Some(POISON);
    Fingerprint::new(config)
}

fn plain_tags() -> ParserOptions {
    ParserOptions {
        format: TagFormat::Plain,
        starts_in_reasoning: false,
        reasoning: false,
        delivery: Delivery::Whole,
        tools: Arc::new(ToolSet::default()),
    }
}

fn request(prompt_len: u32, max_tokens: u32) -> Request {
    Request {
        prompt: (0..prompt_len)
            .map(|idx| TokenId(7 + idx * 5 % 40))
            .collect(),
        sampling: SamplingParams::greedy(),
        max_tokens,
        end_tokens: vec![],
        stop_strings: vec![],
        tags: plain_tags(),
        matcher: None,
        reasoning: None,
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
    }
}

/// Allows a third of the vocabulary, another third after each token; the end from some depth on.
#[derive(Clone, Debug, Default)]
struct Thirds {
    taken: Vec<TokenId>,
    /// Says it is broken at this depth.
    broken_at: Option<usize>,
    /// Forgets this many tokens too few when rolled back.
    leaks: u32,
    /// Refuses everything that its mask allowed.
    is_liar: bool,
}

impl Thirds {
    fn allows(&self, token: TokenId) -> bool {
        if token == END {
            return self.can_finish();
        }
        let depth = self.taken.len() as u32;
        token != CONTROL && (token.0 + depth).is_multiple_of(3)
    }
}

impl Matcher for Thirds {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        if self.broken_at == Some(self.taken.len()) {
            return Err(MatcherError::Broken("out of fuel".into()));
        }
        let tokens = (0..VOCAB_SIZE).map(TokenId);
        tokens
            .filter(|&token| self.allows(token))
            .for_each(|token| mask.allow(token));
        Ok(())
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        if self.is_liar || token == END || !self.allows(token) {
            return Err(MatcherError::Rejected(token));
        }
        self.taken.push(token);
        Ok(())
    }

    fn rollback(&mut self, num_tokens: u32) {
        let num_tokens = num_tokens.saturating_sub(self.leaks) as usize;
        assert!(num_tokens <= self.taken.len());
        self.taken.truncate(self.taken.len() - num_tokens);
    }

    fn depth(&self) -> u32 {
        self.taken.len() as u32
    }

    fn can_finish(&self) -> bool {
        self.taken.len() >= 5
    }
}

/// What a reader sees of a sequence: all but the traces of scheduling and of the cache.
fn visible(events: &[Event], seq: SeqId) -> Vec<(u32, EventKind)> {
    let own = events.iter().filter(|event| event.seq == seq);
    let told =
        own.filter(|event| !matches!(event.kind, EventKind::Scheduled | EventKind::Preempted));
    told.map(|event| {
        let mut kind = event.kind.clone();
        if let EventKind::Finished(finished) = &mut kind {
            finished.usage.cached_tokens = 0;
        }
        (event.at, kind)
    })
    .collect()
}

fn finish(events: &[Event], seq: SeqId) -> Finish {
    let finished: Vec<&Finished> = events
        .iter()
        .filter(|event| event.seq == seq)
        .filter_map(|event| match &event.kind {
            EventKind::Finished(finished) => Some(finished),
            _ => None,
        })
        .collect();
    assert_eq!(finished.len(), 1, "{seq:?} finishes exactly once");
    finished[0].finish.clone()
}

fn tokens(events: &[Event], seq: SeqId) -> Vec<TokenId> {
    let own = events.iter().filter(|event| event.seq == seq);
    own.filter_map(|event| match event.kind {
        EventKind::Token { token, .. } => Some(token),
        _ => None,
    })
    .collect()
}
