//! The law: a request's tokens and digests depend on the request alone. Batch mates, chunk sizes, drafts,
//! preemption, block and row ids, threads and the instruction set are all drawn at random.

use super::replay::{Answer, Ask, Dice, alone, together};
use super::{load, open};
use crate::{CpuOptions, Isa, WeightRule};
use lockstep_package::Package;
use lockstep_step::{SamplingParams, TokenId};
use proptest::prelude::*;

fn options(weights: WeightRule, isa: Isa, num_threads: usize) -> CpuOptions {
    CpuOptions {
        weights,
        isa: Some(isa),
        num_threads,
        num_blocks: 24,
        num_rows: 24,
        query_tokens_max: 512,
        ..CpuOptions::default()
    }
}

fn ask(dice: &mut Dice) -> Ask {
    let num_prompt = [1, 5, 40, 63, 64, 65, 100][dice.below(7)];
    let mut sampling = SamplingParams::greedy();
    if dice.one_in(2) {
        sampling.temperature = 0.9;
        sampling.top_p = 0.95;
        sampling.seed = dice.below(1000) as u64;
    }
    Ask {
        prompt: (0..num_prompt)
            .map(|_| TokenId(dice.below(256) as u32))
            .collect(),
        sampling,
        num_output: 4 + dice.below(8),
    }
}

fn check(package: &Package, seed: u64) {
    let mut dice = Dice(seed);
    let weights = [WeightRule::F32, WeightRule::Q8][dice.below(2)];
    let asks: Vec<Ask> = (0..3).map(|_| ask(&mut dice)).collect();
    let available = Isa::available();
    let isa = available[dice.below(available.len())];
    let mut backend = load(package, &options(weights, isa, 1));
    let right: Vec<Answer> = asks.iter().map(|ask| alone(&mut backend, ask)).collect();
    let other = available[dice.below(available.len())];
    let num_threads = 1 + dice.below(3);
    let mut backend = load(package, &options(weights, other, num_threads));
    let asks: Vec<(Ask, Answer)> = asks.into_iter().zip(right.clone()).collect();
    let found = together(&mut backend, &asks, dice);
    assert_eq!(
        found, right,
        "{weights}, {isa} alone, {other} on {num_threads} threads together"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn a_hybrid_answers_the_same_in_any_company(seed: u64) {
        check(&open("qwen3_5"), seed);
    }

    #[test]
    fn attention_answers_the_same_in_any_company(seed: u64) {
        check(&open("llama"), seed);
    }
}
