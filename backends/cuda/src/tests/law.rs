//! Random requests through an engine with speculation, prefix cache, overlap, chunks and preemption, on the CPU and
//! on the device, step by step.

use super::twin::{Twin, open};
use crate::{CudaOptions, WeightRule};
use lockstep_core::{Engine, EngineConfig, Request, Speculation, Vocabulary, run_to_end};
use lockstep_numerics::digest::mix64;
use lockstep_step::{Bitmask, Matcher, MatcherError, SamplingParams, TokenId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use std::sync::Arc;

/// A seeded sequence of numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix64(self.0) % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Allows a third of the vocabulary, another third after each token.
struct Thirds {
    vocab_size: u32,
    taken: Vec<TokenId>,
}

impl Thirds {
    fn allows(&self, token: TokenId) -> bool {
        (token.0 as usize + self.taken.len()).is_multiple_of(3)
    }
}

impl Matcher for Thirds {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        let tokens = (0..self.vocab_size).map(TokenId);
        let allowed = tokens.filter(|&token| self.allows(token));
        allowed.for_each(|token| mask.allow(token));
        Ok(())
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        if !self.allows(token) {
            return Err(MatcherError::Rejected(token));
        }
        self.taken.push(token);
        Ok(())
    }

    fn rollback(&mut self, num_tokens: u32) {
        let len = self.taken.len() - num_tokens as usize;
        self.taken.truncate(len);
    }

    fn depth(&self) -> u32 {
        self.taken.len() as u32
    }

    fn can_finish(&self) -> bool {
        false
    }
}

fn sampling(dice: &mut Dice, vocab_size: u32) -> SamplingParams {
    let mut sampling = SamplingParams::greedy();
    if dice.one_in(3) {
        return sampling;
    }
    sampling.temperature = [0.7, 1.0, 1.9][dice.below(3)];
    sampling.seed = dice.below(1000) as u64;
    sampling.top_k = [0, 0, 3, 40][dice.below(4)];
    sampling.top_p = [1.0, 0.95, 0.5][dice.below(3)];
    sampling.min_p = [0.0, 0.0, 0.05][dice.below(3)];
    if dice.one_in(2) {
        sampling.frequency_penalty = 0.7;
        sampling.repetition_penalty = 1.2;
    }
    if dice.one_in(3) {
        sampling.presence_penalty = -0.4;
        let token = TokenId(dice.below(vocab_size as usize) as u32);
        sampling.bias = vec![(token, 3.0)];
    }
    if dice.one_in(3) {
        sampling.top_logprobs = Some([0, 1, 5, 20][dice.below(4)]);
    }
    sampling
}

fn request(dice: &mut Dice, vocab_size: u32) -> Request {
    let num_prompt = [1, 3, 17, 63, 64, 65, 130][dice.below(7)];
    // Few tokens, so that drafts by likeness are made and some of them are right.
    let kinds = [5, 200][dice.below(2)];
    let matcher = dice.one_in(3).then(|| {
        Box::new(Thirds {
            vocab_size,
            taken: Vec::new(),
        }) as Box<dyn Matcher>
    });
    Request {
        prompt: (0..num_prompt)
            .map(|_| TokenId(10 + dice.below(kinds) as u32))
            .collect(),
        sampling: sampling(dice, vocab_size),
        max_tokens: 3 + dice.below(12) as u32,
        end_tokens: vec![],
        stop_strings: vec![],
        tags: ParserOptions {
            format: TagFormat::Plain,
            starts_in_reasoning: false,
            reasoning: false,
            delivery: Delivery::Whole,
            tools: Arc::new(ToolSet::default()),
        },
        matcher,
        reasoning: None,
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
    }
}

/// Runs a few random requests; how many steps and draws were compared, and how many drafts were accepted.
fn run((name, draft): (&str, Option<&str>), weights: WeightRule, seed: u64) -> (usize, usize, u64) {
    let mut dice = Dice(seed);
    let package = open(name);
    let options = CudaOptions {
        weights,
        num_blocks: [8, 24][dice.below(2)],
        num_rows: [12, 24][dice.below(2)],
        query_tokens_max: 96,
        seq_len_max: Some(512),
        mtp: package.has_mtp(),
        graph_rows: [0, 8, 96][dice.below(3)],
        ..CudaOptions::default()
    };
    let draft = draft.map(open);
    let mut twin = Twin::new(&package, draft.as_ref(), &options);
    let vocab_size = package.config.vocab_size as u32;
    let config = EngineConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: [40, 96][dice.below(2)],
        chunk_tokens_max: [7, 64][dice.below(2)],
        speculation: Speculation {
            ngram: [0, 5][dice.below(2)],
            suffix: [0, 4][dice.below(2)],
            mtp: if options.mtp { 3 } else { 0 },
            draft_model: if draft.is_some() { 4 } else { 0 },
            ..Speculation::OFF
        },
        prefix_cache: dice.one_in(2),
        overlap: dice.one_in(2),
        checked: true,
        ..EngineConfig::default()
    };
    let words = (0..vocab_size).map(|id| Box::from(id.to_le_bytes()));
    let words = Vocabulary::new(words.collect(), vec![]);
    let limits = lockstep_step::Backend::limits(&twin);
    let mut engine = Engine::new(config, limits, Arc::new(words)).expect("an engine");
    for idx in 0..2 + dice.below(4) {
        let request = request(&mut dice, vocab_size);
        engine
            .submit(lockstep_core::Time(idx as u64), request)
            .expect("room for a request");
    }
    run_to_end(&mut engine, &mut twin).expect("the engine's invariants hold");
    let accepted = engine.stats().totals.num_drafts_accepted;
    (twin.num_steps, twin.num_draws, accepted)
}

fn run_all(models: (&str, Option<&str>), weights: WeightRule, seeds: std::ops::Range<u64>) {
    let (mut steps, mut draws, mut accepted) = (0, 0, 0);
    for seed in seeds {
        let compared = run(models, weights, seed);
        (steps, draws) = (steps + compared.0, draws + compared.1);
        accepted += compared.2;
    }
    assert!(steps > 20 && draws > 40, "{steps} steps, {draws} draws");
    assert!(accepted > 0, "no draft was ever right");
}

#[test]
fn a_llama_by_the_f32_rule() {
    run_all(("llama", None), WeightRule::F32, 0..4);
}

#[test]
fn a_llama_by_the_q8_rule() {
    run_all(("llama", None), WeightRule::Q8, 10..14);
}

#[test]
fn a_qwen3_by_the_q8_rule() {
    run_all(("qwen3", None), WeightRule::Q8, 20..24);
}

#[test]
fn a_hybrid_by_the_q8_rule() {
    run_all(("qwen3_5", None), WeightRule::Q8, 30..34);
}

#[test]
fn a_hybrid_by_the_f32_rule() {
    run_all(("qwen3_5", None), WeightRule::F32, 40..43);
}

#[test]
fn the_embedded_model_with_its_own_head_that_drafts() {
    run_all(("embedded", None), WeightRule::Q8, 50..52);
}

#[test]
fn a_hybrid_that_drafts_for_itself() {
    run_all(("qwen3_5", Some("qwen3_5")), WeightRule::Q8, 60..62);
}
