//! Models that draft: what they propose is decided by the sequence alone, and changes nothing the model says.

use super::replay::{Ask, Dice, alone, together};
use super::speak::{Pools, Speaker, propose, step};
use super::{load, open};
use crate::{CpuBackend, CpuOptions, Isa, WeightRule};
use lockstep_package::{EMBEDDED_BATTERY, NoProgress, Package, Source};
use lockstep_step::{
    Backend, BackendError, ModelDrafter, PlanRule, ProposalPlan, SamplingParams, TokenId,
};
use proptest::prelude::*;

fn options(mtp: bool) -> CpuOptions {
    CpuOptions {
        num_blocks: 24,
        num_rows: 24,
        mtp,
        ..CpuOptions::default()
    }
}

fn embedded() -> Package {
    Package::embedded().expect("it is part of the program")
}

fn sampling(dice: &mut Dice) -> SamplingParams {
    let mut sampling = SamplingParams::greedy();
    if dice.one_in(2) {
        sampling.temperature = 0.8;
        sampling.seed = dice.below(1000) as u64;
    }
    sampling
}

fn prompt(dice: &mut Dice) -> Vec<TokenId> {
    let len = [2, 5, 40, 63, 64, 65, 130][dice.below(7)];
    (0..len).map(|_| TokenId(dice.below(256) as u32)).collect()
}

/// Proposals for one sequence by itself on the scalar definition, and the bits of what its blocks hold.
fn proposed_alone(package: &Package, weights: WeightRule, speaker: &Speaker) -> Vec<TokenId> {
    let options = CpuOptions {
        weights,
        isa: Some(Isa::Scalar),
        ..options(true)
    };
    let mut backend = load(package, &options);
    let mut pools = Pools::of(&backend);
    let prompt = speaker.tokens.clone();
    let mut own = Speaker::new(0, prompt, speaker.sampling.clone());
    let num_tokens = own.tokens.len() - 1;
    step(
        &mut backend,
        &mut pools,
        &mut [(&mut own, num_tokens, vec![])],
    );
    let ask = own.ask(&mut pools, ModelDrafter::Mtp, 6);
    propose(&mut backend, vec![ask]).remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Any cut of the prompt, any company in steps and questions, any blocks, instruction set and number of
    /// threads, a second answer, and a beginning in the blocks of another sequence.
    #[test]
    fn company_changes_no_proposal(seed: u64) {
        let mut dice = Dice(seed);
        let package = open("qwen3_5");
        let weights = [WeightRule::F32, WeightRule::Q8][dice.below(2)];
        let available = Isa::available();
        let options = CpuOptions {
            weights,
            isa: Some(available[dice.below(available.len())]),
            num_threads: 1 + dice.below(3),
            ..options(true)
        };
        let mut backend = load(&package, &options);
        let mut pools = Pools::of(&backend);
        let shuffle = dice.below(20);
        pools.blocks.rotate_left(shuffle);
        let mut speakers: Vec<Speaker> = (0..4)
            .map(|id| Speaker::new(id, prompt(&mut dice), sampling(&mut dice)))
            .collect();
        let right: Vec<_> = speakers
            .iter()
            .map(|speaker| proposed_alone(&package, weights, speaker))
            .collect();
        loop {
            let mut parts = Vec::new();
            for speaker in &mut speakers {
                let left = speaker.tokens.len() - 1 - speaker.num_computed;
                if left > 0 && !dice.one_in(3) {
                    parts.push((speaker, 1 + dice.below(left), vec![]));
                }
            }
            if !parts.is_empty() {
                step(&mut backend, &mut pools, &mut parts);
            }
            if speakers.iter().all(|one| one.num_computed + 1 == one.tokens.len()) {
                break;
            }
        }
        let mut ask = |speakers: &mut [Speaker]| {
            let asks = speakers.iter_mut();
            let asks = asks.map(|one| one.ask(&mut pools, ModelDrafter::Mtp, 6));
            propose(&mut backend, asks.collect())
        };
        prop_assert_eq!(&ask(&mut speakers), &right);
        prop_assert_eq!(&ask(&mut speakers), &right, "asked twice");
        prop_assert_eq!(&ask(&mut speakers[1..2]), &right[1..2]);
    }

    #[test]
    fn the_model_says_the_same_with_the_head_and_without(seed: u64) {
        let mut dice = Dice(seed);
        let package = open("qwen3_5");
        let asks: Vec<Ask> = (0..3)
            .map(|_| Ask {
                prompt: prompt(&mut dice),
                sampling: sampling(&mut dice),
                num_output: 6,
            })
            .collect();
        let mut plain = load(&package, &options(false));
        let right: Vec<_> = asks.iter().map(|ask| alone(&mut plain, ask)).collect();
        let asks: Vec<_> = asks.into_iter().zip(right.clone()).collect();
        let mut backend = load(&package, &options(true));
        prop_assert_eq!(together(&mut backend, &asks, dice), right);
    }
}

#[test]
fn a_prefix_in_shared_blocks_is_read_and_not_written() {
    let package = open("qwen3_5");
    let mut dice = Dice(5);
    let tokens: Vec<TokenId> = (0..100).map(|_| TokenId(dice.below(256) as u32)).collect();
    let mut backend = load(&package, &options(true));
    let mut pools = Pools::of(&backend);
    let mut first = Speaker::new(0, tokens[..80].to_vec(), SamplingParams::greedy());
    step(&mut backend, &mut pools, &mut [(&mut first, 64, vec![])]);
    // Goes on from the first block, with other tokens after it.
    let mut second = Speaker::new(1, tokens.clone(), SamplingParams::greedy());
    second.tokens.drain(64..80);
    second.blocks.push(first.blocks[0]);
    second.row = first.row;
    second.num_computed = 64;
    let right = proposed_alone(&package, WeightRule::F32, &second);
    let found = {
        let own_row = second.row;
        let left = second.tokens.len() - 65;
        step(&mut backend, &mut pools, &mut [(&mut second, left, vec![])]);
        // The row is the first sequence's still.
        pools.rows.retain(|row| Some(*row) != own_row);
        let ask = second.ask(&mut pools, ModelDrafter::Mtp, 6);
        propose(&mut backend, vec![ask])
    };
    assert_eq!(found, [right]);
    let right = proposed_alone(&package, WeightRule::F32, &first);
    step(&mut backend, &mut pools, &mut [(&mut first, 15, vec![])]);
    let ask = first.ask(&mut pools, ModelDrafter::Mtp, 6);
    assert_eq!(propose(&mut backend, vec![ask]), [right]);
}

/// How many first, second, ... drafts were right of those that were tried.
fn acceptance(
    package: &Package,
    backend: &mut CpuBackend,
    drafter: ModelDrafter,
    (depth, num_prompts): (usize, usize),
) -> Vec<(usize, usize)> {
    let mut counts = vec![(0, 0); depth];
    for line in EMBEDDED_BATTERY.lines().step_by(300 / num_prompts) {
        let case: serde_json::Value = serde_json::from_str(line).expect("a JSON object");
        let messages = case["messages"].as_array().expect("messages");
        let tools = case["tools"].as_array().map(|tools| &tools[..]);
        let prompt = package.encode_chat(messages, tools, &serde_json::Map::new(), true);
        let prompt = prompt.expect("it renders").token_ids;
        let mut pools = Pools::of(backend);
        let prompt: Vec<TokenId> = prompt.into_iter().map(TokenId).collect();
        let num_prompt = prompt.len();
        let mut speaker = Speaker::new(0, prompt, SamplingParams::greedy());
        step(
            backend,
            &mut pools,
            &mut [(&mut speaker, num_prompt, vec![])],
        );
        while speaker.tokens.len() < num_prompt + 60 {
            let last = speaker.tokens.last().expect("not empty").0;
            if package.contract.end_tokens.contains(&last) {
                break;
            }
            let ask = speaker.ask(&mut pools, drafter, depth);
            let drafts = propose(backend, vec![ask]).remove(0);
            let draws = step(
                backend,
                &mut pools,
                &mut [(&mut speaker, 1, drafts.clone())],
            );
            for ((draft, draw), (right, tried)) in drafts.iter().zip(&draws[0]).zip(&mut counts) {
                *tried += 1;
                if *draft != draw.token {
                    break;
                }
                *right += 1;
            }
        }
    }
    counts
}

#[test]
fn the_embedded_head_is_often_right() {
    let package = embedded();
    let mut backend = load(&package, &options(true));
    let counts = acceptance(&package, &mut backend, ModelDrafter::Mtp, (3, 10));
    let share = |idx: usize| counts[idx].0 as f64 / counts[idx].1.max(1) as f64;
    println!(
        "{counts:?}: {:.3} {:.3} {:.3}",
        share(0),
        share(1),
        share(2)
    );
    assert!(counts[0].1 > 100, "{counts:?}");
    // Over 100 prompts it is 0.928, 0.428 and 0.557.
    assert!(share(0) > 0.7 && share(1) > 0.3, "{counts:?}");
}

#[test]
fn the_head_is_asked_for_by_name_or_is_not_there() {
    let mut backend = load(&open("qwen3_5"), &options(false));
    assert!(!backend.has_drafter(ModelDrafter::Mtp));
    let mut pools = Pools::of(&backend);
    let mut speaker = Speaker::new(0, vec![TokenId(1); 3], SamplingParams::greedy());
    let ask = speaker.ask(&mut pools, ModelDrafter::Mtp, 2);
    let asked = backend.propose(&ProposalPlan {
        seqs: vec![ask.clone()],
    });
    assert!(matches!(asked, Err(BackendError::Device(message)) if message.contains("Mtp")));

    let mut backend = load(&open("qwen3_5"), &options(true));
    assert!(backend.has_drafter(ModelDrafter::Mtp));
    let mut bad = ask.clone();
    bad.num_max = 0;
    let asked = backend.propose(&ProposalPlan { seqs: vec![bad] });
    let rule = PlanRule::QuerySize;
    assert!(matches!(asked, Err(BackendError::Refused(error)) if error.rule == rule));
    // From the first token on, of which nothing is computed.
    assert_eq!(propose(&mut backend, vec![ask.clone()])[0].len(), 2);
    // One that asks in vain leaves the others what they get.
    let mut other = Speaker::new(1, vec![TokenId(1); 3], SamplingParams::greedy());
    let in_vain = other.ask(&mut pools, ModelDrafter::DraftModel, 2);
    let found = propose(&mut backend, vec![ask, in_vain]);
    assert_eq!([found[0].len(), found[1].len()], [2, 0]);

    let error = CpuBackend::load(&open("llama"), &options(true), &NoProgress).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("no head of its own"), "{error}");
    let headless = rewritten(|name, bytes| (name != "mtp.safetensors").then_some(bytes));
    load(&headless, &options(false));
    let error = CpuBackend::load(&headless, &options(true), &NoProgress).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("mtp.fc.weight, mtp.layers.0."), "{error}");
}

fn load_with_draft(package: &Package, draft: &Package, options: &CpuOptions) -> CpuBackend {
    CpuBackend::load_with_draft(package, Some(draft), options, &NoProgress).expect("they fit")
}

fn varied() -> SamplingParams {
    SamplingParams {
        temperature: 0.9,
        top_p: 0.95,
        seed: 11,
        ..SamplingParams::greedy()
    }
}

/// A model that is its own draft model proposes what it then says, to the last token.
#[test]
fn a_model_guesses_itself() {
    for (package, num_prompt) in [(embedded(), 70), (open("llama"), 62), (open("qwen3_5"), 62)] {
        let mut dice = Dice(8);
        let mut backend = load_with_draft(&package, &package, &options(false));
        let mut pools = Pools::of(&backend);
        let mut speakers: Vec<Speaker> = [SamplingParams::greedy(), varied()]
            .into_iter()
            .enumerate()
            .map(|(id, sampling)| {
                let prompt = (0..num_prompt + id).map(|_| TokenId(dice.below(256) as u32));
                Speaker::new(id as u64, prompt.collect(), sampling)
            })
            .collect();
        for speaker in &mut speakers {
            let len = speaker.tokens.len();
            step(&mut backend, &mut pools, &mut [(speaker, len, vec![])]);
        }
        for round in 0..5 {
            let asks = speakers.iter_mut();
            let asks = asks.map(|one| one.ask(&mut pools, ModelDrafter::DraftModel, 4));
            let drafts = propose(&mut backend, asks.collect());
            let parts = speakers.iter_mut().zip(&drafts);
            let mut parts: Vec<_> = parts
                .map(|(one, drafts)| (one, 1, drafts.clone()))
                .collect();
            let draws = step(&mut backend, &mut pools, &mut parts);
            for (drafts, draws) in drafts.iter().zip(draws) {
                let said: Vec<TokenId> = draws.iter().map(|draw| draw.token).collect();
                let name = &package.name;
                assert_eq!(drafts.len(), 4);
                assert_eq!(drafts[..], said[..4], "{name}, round {round}");
            }
        }
    }
}

/// More sequences at once than go through the draft model together, after a draft of others each.
#[test]
fn a_crowd_gets_what_each_gets_alone() {
    let package = open("qwen3_5");
    let options = CpuOptions {
        num_blocks: 80,
        num_rows: 80,
        ..options(true)
    };
    let mut backend = load_with_draft(&package, &package, &options);
    let mut pools = Pools::of(&backend);
    let mut dice = Dice(3);
    let mut speakers: Vec<Speaker> = (0..70)
        .map(|id| {
            let prompt = (0..3).map(|_| TokenId(dice.below(256) as u32)).collect();
            Speaker::new(id, prompt, varied())
        })
        .collect();
    let mut parts: Vec<_> = speakers.iter_mut().map(|one| (one, 2, vec![])).collect();
    step(&mut backend, &mut pools, &mut parts);
    let drafters = [ModelDrafter::Mtp, ModelDrafter::DraftModel];
    let asks: Vec<_> = speakers
        .iter_mut()
        .enumerate()
        .map(|(idx, one)| {
            let mut ask = one.ask(&mut pools, drafters[usize::from(idx % 9 > 0)], 3);
            ask.query.push(TokenId(idx as u32));
            ask.num_max = 1 + idx as u32 % 3;
            ask
        })
        .collect();
    let together = propose(&mut backend, asks.clone());
    for (ask, found) in asks.into_iter().zip(together) {
        assert_eq!(found.len(), ask.num_max as usize);
        assert_eq!(propose(&mut backend, vec![ask]), [found]);
    }
}

#[test]
fn a_draft_model_that_does_not_fit_is_refused() {
    let refused = |package: &Package, draft: &Package| {
        let loaded =
            CpuBackend::load_with_draft(package, Some(draft), &options(false), &NoProgress);
        let error = loaded.err().map(|error| error.to_string());
        error.expect("it doesn't fit")
    };
    let error = refused(&open("llama"), &open("qwen3_5"));
    assert!(error.contains("recurrent state"), "{error}");
    let error = refused(&embedded(), &open("llama"));
    assert!(error.contains("256 tokens, expected 2048"), "{error}");
    let other = swapped_tokens();
    let error = refused(&embedded(), &other);
    assert!(error.contains("is \"b\", expected \"a\""), "{error}");
    // One without recurrent state goes with one that has it.
    let backend = load_with_draft(&open("qwen3_5"), &open("llama"), &options(false));
    assert!(backend.has_drafter(ModelDrafter::DraftModel));
}

/// The embedded model with other files.
fn rewritten(file: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>) -> Package {
    let folder = tempfile::tempdir().expect("a folder");
    let Source::Embedded(files) = embedded().source else {
        panic!("it is embedded")
    };
    for (name, bytes) in files {
        if let Some(bytes) = file(name, bytes.to_vec()) {
            std::fs::write(folder.path().join(name), bytes).expect("it is written");
        }
    }
    // Weights stay mapped when the folder is gone.
    Package::open(folder.path(), &NoProgress).expect("it opens")
}

/// The embedded model with `a` in the place of `b`.
fn swapped_tokens() -> Package {
    rewritten(|name, mut bytes| {
        if name == "tokenizer.json" {
            let mut value: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
            let vocab = value["model"]["vocab"].as_object_mut().expect("tokens");
            let (a, b) = (vocab["a"].clone(), vocab["b"].clone());
            assert!(a.is_number() && a != b, "two tokens");
            (vocab["a"], vocab["b"]) = (b, a);
            bytes = value.to_string().into_bytes();
        }
        Some(bytes)
    })
}

/// One without recurrent state drafts beside one that has it.
#[test]
fn a_plain_model_drafts_for_a_hybrid() {
    let mut backend = load_with_draft(&open("qwen3_5"), &open("llama"), &options(false));
    let mut plain = load(&open("llama"), &options(false));
    let (mut pools, mut plain_pools) = (Pools::of(&backend), Pools::of(&plain));
    let tokens: Vec<TokenId> = (0..70).map(|id| TokenId(3 * id)).collect();
    let mut speaker = Speaker::new(0, tokens.clone(), varied());
    step(&mut backend, &mut pools, &mut [(&mut speaker, 69, vec![])]);
    let ask = speaker.ask(&mut pools, ModelDrafter::DraftModel, 3);
    let drafts = propose(&mut backend, vec![ask]).remove(0);
    let mut alone = Speaker::new(0, tokens, varied());
    for num_tokens in [70, 1, 1] {
        step(
            &mut plain,
            &mut plain_pools,
            &mut [(&mut alone, num_tokens, vec![])],
        );
    }
    assert_eq!(drafts, alone.tokens[70..]);
}
