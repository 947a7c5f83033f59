//! Digests of operations are a function of the sequence alone, and asking for them changes nothing.

use super::replay::Dice;
use super::speak::{Pools, Speaker, step};
use super::{fixture, load, open};
use crate::{CpuBackend, CpuOptions, Isa, WeightRule};
use lockstep_package::Package;
use lockstep_step::{Backend, Draw, OpDigest, SamplingParams, StepId, TokenId};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Of one token: layer, operation and digest, in the order of operations.
type Ops = Vec<(Option<u32>, &'static str, u64)>;

/// By sequence and position.
type ByPlace = BTreeMap<(u64, u32), Ops>;

fn options(weights: WeightRule, isa: Isa, num_threads: usize, static_buffers: bool) -> CpuOptions {
    CpuOptions {
        weights,
        isa: Some(isa),
        num_threads,
        num_blocks: 24,
        num_rows: 40,
        seq_len_max: Some(320),
        static_buffers,
        ..CpuOptions::default()
    }
}

fn speaker(id: u64, tokens: &[TokenId]) -> Speaker {
    Speaker::new(id, tokens.to_vec(), SamplingParams::greedy())
}

fn noted(backend: &mut CpuBackend, pools: &Pools, into: &mut ByPlace) {
    let ops = backend.take_ops(StepId(pools.num_steps));
    for OpDigest {
        seq,
        pos,
        layer,
        op,
        digest,
    } in ops
    {
        let own = into.entry((seq.0, pos.0)).or_default();
        own.push((layer, op, digest.0));
    }
}

/// All tokens of each sequence at once, alone, and every position scored by a draft of the token after it.
fn alone(backend: &mut CpuBackend, prompts: &[Vec<TokenId>]) -> ByPlace {
    let mut all = BTreeMap::new();
    assert!(backend.watch_ops(true));
    for (id, prompt) in prompts.iter().enumerate() {
        let mut pools = Pools::of(backend);
        let mut one = speaker(id as u64, prompt);
        step(
            backend,
            &mut pools,
            &mut [(&mut one, prompt.len(), Vec::new())],
        );
        noted(backend, &pools, &mut all);
    }
    all
}

/// The same prompts in random chunks, each with the others as company, and with drafts behind the last of them.
fn together(
    backend: &mut CpuBackend,
    prompts: &[Vec<TokenId>],
    dice: &mut Dice,
    is_watched: bool,
) -> (ByPlace, Vec<Vec<Draw>>) {
    let mut pools = Pools::of(backend);
    let (mut all, mut draws) = (BTreeMap::new(), Vec::new());
    assert!(backend.watch_ops(is_watched));
    let speakers = prompts.iter().enumerate();
    let mut speakers: Vec<Speaker> = speakers
        .map(|(id, prompt)| speaker(id as u64, prompt))
        .collect();
    let is_left = |one: &Speaker| one.num_computed < prompts[one.id.0 as usize].len();
    while speakers.iter().any(is_left) {
        let mut parts = Vec::new();
        for one in speakers.iter_mut().filter(|one| is_left(one)) {
            let left = one.tokens.len() - one.num_computed;
            let num_tokens = 1 + dice.below(left);
            let num_drafts = if num_tokens == left { dice.below(4) } else { 0 };
            let drafts = (0..num_drafts).map(|_| TokenId(dice.below(256) as u32));
            parts.push((one, num_tokens, drafts.collect()));
        }
        draws.extend(step(backend, &mut pools, &mut parts));
        noted(backend, &pools, &mut all);
    }
    (all, draws)
}

fn prompts(dice: &mut Dice) -> Vec<Vec<TokenId>> {
    let prompt = |dice: &mut Dice| {
        let len = [1, 5, 64, 70][dice.below(4)];
        (0..len).map(|_| TokenId(dice.below(256) as u32)).collect()
    };
    (0..3).map(|_| prompt(dice)).collect()
}

fn check(package: &Package, seed: u64) {
    let mut dice = Dice(seed);
    let weights = [WeightRule::F32, WeightRule::Q8][dice.below(2)];
    let prompts = prompts(&mut dice);
    let mut scalar = load(package, &options(weights, Isa::Scalar, 1, false));
    let right = alone(&mut scalar, &prompts);
    for isa in Isa::available() {
        let num_threads = 1 + dice.below(3);
        let other = options(weights, isa, num_threads, dice.one_in(2));
        let mut backend = load(package, &other);
        let mut unwatched = load(package, &other);
        let (found, draws) = together(&mut backend, &prompts, &mut dice.clone(), true);
        let (nothing, plain) = together(&mut unwatched, &prompts, &mut dice, false);
        assert!(nothing.is_empty(), "nobody asked");
        assert_eq!(draws, plain, "asking changes nothing");
        assert!(backend.contents() == unwatched.contents());
        let mut num_compared = 0;
        for (place, ops) in &right {
            let own = &found[place];
            // What is computed of scored positions alone may be missing.
            let is_shared = |op: &&(Option<u32>, &str, u64)| op.0.is_some() || op.1 == "embedding";
            let shared: Vec<_> = ops.iter().filter(is_shared).collect();
            let of_own: Vec<_> = own.iter().filter(is_shared).collect();
            assert_eq!(shared, of_own, "{place:?}, {weights}, {isa}");
            let rest = ops.iter().filter(|op| !is_shared(op));
            for op in rest.filter(|op| own.iter().any(|own| own.1 == op.1)) {
                assert!(own.contains(op), "{place:?}: {op:?}");
                num_compared += 1;
            }
        }
        assert!(num_compared >= 2 * prompts.len(), "final norm and head");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn digests_of_a_hybrid_are_the_same_in_any_company(seed: u64) {
        check(&open("qwen3_5"), seed);
    }

    #[test]
    fn digests_of_attention_are_the_same_in_any_company(seed: u64) {
        check(&open("llama"), seed);
    }
}

#[test]
fn operations_come_in_the_order_of_the_model_each_under_a_name_of_its_own() {
    let package = Package::open(&fixture("qwen3_5"), &lockstep_package::NoProgress);
    let package = package.expect("the fixture is whole");
    let mut backend = load(&package, &CpuOptions::default());
    let ops = alone(&mut backend, &[vec![TokenId(3), TokenId(4)]]);
    let first: Vec<(Option<u32>, &str)> = ops[&(0, 0)].iter().map(|op| (op.0, op.1)).collect();
    let delta_net = [
        "norm",
        "qkvz",
        "conv",
        "gates",
        "recurrence",
        "delta_net_out",
        "delta_net",
        "mlp_norm",
        "gate_up",
        "silu_mul",
        "down",
        "mlp",
    ];
    assert_eq!(first[0], (None, "embedding"));
    let in_first_layer = delta_net.map(|name| (Some(0), name));
    assert_eq!(first[1..13], in_first_layer);
    let attention = [
        "norm",
        "qkv",
        "rotary",
        "attend",
        "attention_out",
        "attention",
    ];
    let at = first.iter().position(|op| op.1 == "attend").expect("one");
    let layer = first[at].0;
    assert_eq!(first[at - 3..at + 3], attention.map(|name| (layer, name)));
    // Only the last position is scored.
    let last: Vec<&str> = ops[&(0, 1)].iter().map(|op| op.1).collect();
    assert_eq!(
        last[..first.len()],
        first.iter().map(|op| op.1).collect::<Vec<_>>()
    );
    assert_eq!(last[first.len()..], ["final_norm", "head"]);
    let mut names = first.clone();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), first.len());
}

#[test]
fn the_digest_of_the_head_is_that_of_the_draw() {
    let mut backend = load(&open("llama"), &CpuOptions::default());
    backend.watch_ops(true);
    let mut pools = Pools::of(&backend);
    let mut one = speaker(0, &[TokenId(5), TokenId(6)]);
    let draws = step(&mut backend, &mut pools, &mut [(&mut one, 2, vec![])]);
    let ops = backend.take_ops(StepId(1));
    assert_eq!(ops.last().map(|op| op.digest), Some(draws[0][0].digest));
    assert_eq!(backend.take_ops(StepId(1)), []);
}
