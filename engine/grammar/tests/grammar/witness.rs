//! Two witnesses agree: the mask of the crate is, bit for bit, what the plain recogniser finds by trying every
//! token. For random schemas, along random walks, before and after random steps back.

use crate::outline::{Asked, Outline, Spot, asked};
use crate::shapes::{Parameters, parameters};
use crate::toy::{END, VOCAB_SIZE, VOCABULARY, mask, text};
use crate::walker::Walker;
use lockstep_grammar::{Boundary, Compiler, GrammarLimits, ToolChoice};
use lockstep_step::{Bitmask, Matcher, TokenId};
use lockstep_tags::TagFormat;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::RefCell;

fn told(tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| text(token)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn compare(outline: &Outline, spot: &Spot, boundary: &mut Boundary, taken: &[TokenId]) -> Bitmask {
    let here = mask(boundary);
    let expected = outline.mask(spot);
    if here != expected {
        let names = |only: &Bitmask, other: &Bitmask| {
            let ids = (0..VOCAB_SIZE).map(TokenId);
            let only = ids.filter(|&id| only.allows(id) && !other.allows(id));
            only.map(|id| format!("{}:{:?}", id.0, told(&[id])))
                .collect::<Vec<_>>()
        };
        panic!(
            "after {:?}\nonly the boundary allows {:?}\nonly the witness allows {:?}",
            told(taken),
            names(&here, &expected),
            names(&expected, &here)
        );
    }
    assert_eq!(here.allows(END), boundary.can_finish());
    here
}

/// What was looked at.
#[derive(Default)]
struct Tally {
    refused: u32,
    compared: u32,
    /// Masks inside calls and answers under a grammar.
    held: u32,
    ended: u32,
}

/// Walks up to so many tokens.
fn walk(
    outline: &Outline,
    boundary: &mut Boundary,
    walker: &mut Walker,
    num_max: usize,
    tally: &mut Tally,
) {
    let mut spots = vec![outline.begin()];
    let mut taken: Vec<TokenId> = Vec::new();
    for _ in 0..num_max {
        let spot = spots.last().expect("the first is never taken back");
        let here = compare(outline, spot, boundary, &taken);
        tally.compared += 1;
        tally.held += u32::from(spot.is_held());
        assert!(
            here.num_allowed() > 0,
            "nothing may follow {:?}",
            told(&taken)
        );
        if walker.one_in(40) && !taken.is_empty() {
            let back = walker.below(taken.len().min(30)) + 1;
            boundary.rollback(back as u32);
            taken.truncate(taken.len() - back);
            spots.truncate(taken.len() + 1);
            walker.forget();
            continue;
        }
        let token = walker.choose(&here);
        if token == END {
            tally.ended += 1;
            return;
        }
        let after = outline.step(spot, token).expect("it is in the mask");
        boundary.consume(token).expect("it is in the mask");
        assert_eq!(boundary.depth() as usize, taken.len() + 1);
        taken.push(token);
        spots.push(after);
    }
}

/// Compares masks for so many constraints; the same ones each time.
fn run(num_cases: u32, strategy: impl Strategy<Value = Asked>) {
    let config = Config {
        cases: num_cases,
        failure_persistence: None,
        max_shrink_iters: 100,
        ..Config::default()
    };
    let tally = RefCell::new(Tally::default());
    let compiler = Compiler::new(VOCABULARY.clone(), GrammarLimits::default());
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let ran = runner.run(&(strategy, any::<u64>()), |(asked, seed)| {
        let constraint = asked.constraint();
        let mut tally = tally.borrow_mut();
        if let Err(error) = compiler.matcher(&constraint) {
            println!("refused: {error}");
            tally.refused += 1;
            return Ok(());
        }
        let outline = Outline::new(&asked);
        let mut walker = Walker::new(seed);
        for _ in 0..4 {
            let boundary = compiler.matcher(&constraint).expect("it was compiled");
            let mut boundary = boundary.expect("it holds something");
            walker.forget();
            walk(&outline, &mut boundary, &mut walker, 120, &mut tally);
        }
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    let tally = tally.into_inner();
    println!(
        "{num_cases} cases, {} refused, {} masks, {} of them held, {} ends",
        tally.refused, tally.compared, tally.held, tally.ended
    );
    assert!(tally.refused < num_cases / 4);
    assert!(tally.held > 40 * num_cases && tally.ended > num_cases / 2);
}

const NUM_CASES: u32 = 150;

#[test]
fn glm_masks_are_what_the_plain_recogniser_finds() {
    run(NUM_CASES, asked(TagFormat::Glm));
}

#[test]
fn qwen_xml_masks_are_what_the_plain_recogniser_finds() {
    run(NUM_CASES, asked(TagFormat::QwenXml));
}

#[test]
fn hermes_json_masks_are_what_the_plain_recogniser_finds() {
    run(NUM_CASES, asked(TagFormat::HermesJson));
}

#[test]
fn masks_of_answers_are_what_the_plain_recogniser_finds() {
    let with_answer = |(asked, answer, has_tools): (Asked, Parameters, bool)| Asked {
        answer: Some(answer),
        tools: if has_tools { asked.tools } else { Vec::new() },
        choice: if has_tools {
            asked.choice
        } else {
            ToolChoice::Auto
        },
        ..asked
    };
    let strategy = (asked(TagFormat::Glm), parameters(), any::<bool>());
    run(NUM_CASES, strategy.prop_map(with_answer));
}
