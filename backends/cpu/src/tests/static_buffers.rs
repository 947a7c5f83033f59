//! Steps in buffers of fixed sizes: padding is not finite, and leaves no trace anywhere.

use super::replay::{Ask, Dice, alone, together};
use super::speak::{Pools, Speaker, propose, step};
use super::{load, open};
use crate::{CpuBackend, CpuOptions, Isa, WeightRule};
use lockstep_package::{NoProgress, Package};
use lockstep_step::{Draw, ModelDrafter, SamplingParams, TokenId};
use proptest::prelude::*;

fn options(static_buffers: bool, weights: WeightRule) -> CpuOptions {
    CpuOptions {
        weights,
        num_blocks: 24,
        num_rows: 40,
        seq_len_max: Some(320),
        static_buffers,
        ..CpuOptions::default()
    }
}

fn sampling(dice: &mut Dice) -> SamplingParams {
    SamplingParams {
        temperature: [0.0, 0.9][dice.below(2)],
        seed: dice.below(100) as u64,
        top_logprobs: Some(3),
        ..SamplingParams::greedy()
    }
}

/// Three sequences in steps of random parts with random drafts, and proposals in between.
fn drive(backend: &mut CpuBackend, mut dice: Dice) -> (Vec<Vec<Draw>>, Vec<Vec<TokenId>>) {
    let mut pools = Pools::of(backend);
    let (mut draws, mut proposals) = (Vec::new(), Vec::new());
    let mut speakers: Vec<Speaker> = (0..3)
        .map(|id| {
            let num_prompt = 1 + dice.below(80);
            let prompt = (0..num_prompt).map(|_| TokenId(dice.below(256) as u32));
            Speaker::new(id, prompt.collect(), sampling(&mut dice))
        })
        .collect();
    for _ in 0..10 {
        let mut parts = Vec::new();
        for speaker in &mut speakers {
            let left = speaker.tokens.len() - speaker.num_computed;
            if dice.one_in(3) {
                continue;
            }
            let num_tokens = 1 + dice.below(left);
            let num_drafts = if num_tokens == left { dice.below(4) } else { 0 };
            let drafts = (0..num_drafts).map(|_| TokenId(dice.below(256) as u32));
            parts.push((speaker, num_tokens, drafts.collect()));
        }
        if !parts.is_empty() {
            draws.extend(step(backend, &mut pools, &mut parts));
        }
        let asks: Vec<_> = speakers
            .iter_mut()
            .filter(|one| one.num_computed > 0)
            .map(|one| {
                let drafters = [ModelDrafter::Mtp, ModelDrafter::DraftModel];
                one.ask(&mut pools, drafters[dice.below(2)], 1 + dice.below(4))
            })
            .collect();
        proposals.extend(propose(backend, asks));
    }
    (draws, proposals)
}

fn with_drafters(package: &Package, mut options: CpuOptions) -> CpuBackend {
    options.mtp = true;
    let loaded = CpuBackend::load_with_draft(package, Some(package), &options, &NoProgress);
    loaded.expect("the fixture loads")
}

fn bits(backend: &CpuBackend) -> Vec<u32> {
    let contents = backend.contents();
    // Padding would have left it here.
    assert!(contents.iter().all(|value| value.is_finite()));
    assert!(
        contents.iter().any(|&value| value != 0.0),
        "something is kept"
    );
    contents.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Draws, digests, log-probabilities, proposals, and every float in every block and row.
    #[test]
    fn nothing_differs_but_the_buffers(seed: u64) {
        let mut dice = Dice(seed);
        let package = open("qwen3_5");
        let weights = [WeightRule::F32, WeightRule::Q8][dice.below(2)];
        let available = Isa::available();
        let isa = Some(available[dice.below(available.len())]);
        let load = |static_buffers| {
            let options = CpuOptions { isa, ..options(static_buffers, weights) };
            with_drafters(&package, options)
        };
        let (mut exact, mut fixed) = (load(false), load(true));
        let right = drive(&mut exact, dice.clone());
        prop_assert_eq!(drive(&mut fixed, dice), right);
        prop_assert!(bits(&exact) == bits(&fixed));
    }

    #[test]
    fn the_law_holds_in_fixed_buffers(seed: u64) {
        let mut dice = Dice(seed);
        let package = open(["llama", "qwen3_5"][dice.below(2)]);
        let asks: Vec<Ask> = (0..3)
            .map(|_| Ask {
                prompt: (0..1 + dice.below(100)).map(|_| TokenId(dice.below(256) as u32)).collect(),
                sampling: sampling(&mut dice),
                num_output: 6,
            })
            .collect();
        let mut exact = load(&package, &options(false, WeightRule::Q8));
        let right: Vec<_> = asks.iter().map(|ask| alone(&mut exact, ask)).collect();
        let asks: Vec<_> = asks.into_iter().zip(right.clone()).collect();
        let mut fixed = load(&package, &options(true, WeightRule::Q8));
        prop_assert_eq!(together(&mut fixed, &asks, dice), right);
    }
}
