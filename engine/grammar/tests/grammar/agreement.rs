//! Grammar and parser agree. What a random walk through the masks has written to its end is read, however it is
//! cut, as calls that fit their schemas; and what a parser can't read, no mask lets through.

use crate::bench::{Bench, told};
use crate::outline::{Asked, asked};
use crate::shapes::parameters;
use crate::toy::{END, PIECES, VOCAB_SIZE, VOCABULARY, mask, spelled, text};
use crate::walker::Walker;
use lockstep_grammar::{Compiler, GrammarLimits, ToolChoice};
use lockstep_step::{Matcher, TokenId};
use lockstep_tags::{Delivery, TagFormat};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::sync::Arc;

/// Walks that must come to their end, per format.
const NUM_WALKS: usize = 10_000;
/// Constraints that they are spread over.
const NUM_CONSTRAINTS: usize = 100;
/// Longer walks are given up, and not counted.
const TOKENS_MAX: usize = 400;

/// Constraints of one format, the same ones each time.
fn benches(format: TagFormat) -> Vec<Bench> {
    let mut runner = TestRunner::deterministic();
    let answer = proptest::option::weighted(0.1, parameters());
    let strategy = (asked(format), answer).prop_map(|(asked, answer)| Asked { answer, ..asked });
    let compiler = Arc::new(Compiler::new(VOCABULARY.clone(), GrammarLimits::default()));
    let mut benches = Vec::new();
    while benches.len() < NUM_CONSTRAINTS {
        let asked = strategy.new_tree(&mut runner).expect("a case").current();
        benches.extend(Bench::new(asked, &compiler));
    }
    benches
}

/// Walks to the end; None if that takes too many tokens.
fn walk(bench: &Bench, walker: &mut Walker) -> Option<Vec<TokenId>> {
    let mut boundary = bench.begin();
    let mut taken = Vec::new();
    walker.forget();
    while taken.len() < TOKENS_MAX {
        let forced = boundary.forced(TOKENS_MAX);
        for token in forced {
            boundary.consume(token).expect("it is forced");
            taken.push(token);
        }
        let here = mask(&mut boundary);
        let token = walker.choose(&here);
        if token == END {
            assert!(here.allows(END), "nothing may follow {:?}", told(&taken));
            return Some(taken);
        }
        boundary.consume(token).expect("it is in the mask");
        taken.push(token);
    }
    None
}

/// What the walks of one format came to.
#[derive(Debug, Default)]
struct Count {
    dropped: usize,
    calls: usize,
    with_text_and_calls: usize,
    several_calls: usize,
    reasoned: usize,
    fenced: usize,
}

fn random_walks_parse(format: TagFormat) {
    let benches = benches(format);
    let mut walker = Walker::new(format as u64);
    let mut count = Count::default();
    for idx in 0..NUM_WALKS {
        let bench = &benches[idx % benches.len()];
        let tokens = loop {
            match walk(bench, &mut walker) {
                Some(tokens) => break tokens,
                None => count.dropped += 1,
            }
        };
        let read = bench.check(&tokens, &mut || walker.below(12) + 1);
        count.calls += read.calls.len();
        count.with_text_and_calls +=
            usize::from(!read.calls.is_empty() && !read.content.trim().is_empty());
        count.several_calls += usize::from(read.calls.len() > 1);
        count.reasoned += usize::from(!read.reasoning.is_empty());
        count.fenced += usize::from(read.content.contains("```\n"));
    }
    println!("{format}: {NUM_WALKS} walks, {count:?}");
    assert!(count.dropped < 5 * NUM_WALKS);
    assert!(count.calls > NUM_WALKS / 2);
    let seen = [
        count.with_text_and_calls,
        count.several_calls,
        count.reasoned,
        count.fenced,
    ];
    assert!(seen.iter().all(|num| *num > NUM_WALKS / 100), "{count:?}");
}

/// Changes an output a little.
fn mutated(tokens: &[TokenId], walker: &mut Walker) -> Vec<TokenId> {
    let mut out = tokens.to_vec();
    for _ in 0..=walker.below(2) {
        if out.is_empty() {
            return out;
        }
        // Mostly near what a format writes: tags, and marks of JSON.
        let marks: Vec<usize> = (0..out.len())
            .filter(|&at| {
                let text = text(out[at]);
                text.len() > 1 || text.iter().any(|byte| b"<>{}[]\",:\n=/".contains(byte))
            })
            .collect();
        let at = match marks.is_empty() || walker.one_in(3) {
            true => walker.below(out.len()),
            false => marks[walker.below(marks.len())],
        };
        let any = match walker.one_in(2) {
            true => TokenId(256 + walker.below(PIECES.len()) as u32),
            false => TokenId(walker.below(VOCAB_SIZE as usize) as u32),
        };
        match walker.below(7) {
            0 => drop(out.remove(at)),
            1 => out.insert(at, any),
            2 => out[at] = any,
            3 if at + 1 < out.len() => out.swap(at, at + 1),
            4 => {
                let end = (at + 1 + walker.below(30)).min(out.len());
                let again = out[at..end].to_vec();
                out.splice(at..at, again);
            }
            5 => out.truncate(at),
            _ => {
                let bytes = spelled(&String::from_utf8_lossy(&text(out[at])));
                out.splice(at..=at, bytes);
            }
        }
    }
    out.retain(|token| *token != END);
    out
}

/// Mutated outputs per format, and how many of them must be errors at least.
const NUM_MUTATED: usize = 12_000;
const NUM_ERRORS_MIN: usize = 2_000;

fn errors_are_not_let_through(format: TagFormat) {
    let benches = benches(format);
    let mut walker = Walker::new(1 + format as u64);
    let (mut num_errors, mut num_admitted) = (0, 0);
    let mut walked: Vec<TokenId> = Vec::new();
    for idx in 0..NUM_MUTATED {
        let bench = &benches[idx / 4 % benches.len()];
        if idx % 4 == 0 {
            walked = std::iter::repeat_with(|| walk(bench, &mut walker))
                .flatten()
                .find(|tokens| tokens.len() > 3 || bench.asked.choice == ToolChoice::Forbidden)
                .unwrap_or_default();
        }
        let tokens = mutated(&walked, &mut walker);
        let admitted = bench.admits(&tokens);
        let said = told(&tokens);
        match bench.read(&said, Delivery::Whole, &mut || 1) {
            Err(error) => {
                num_errors += 1;
                assert!(
                    !admitted,
                    "{said:?} was let through: {error:?}\n{:?}",
                    bench.asked
                );
            }
            Ok(_) if admitted => {
                num_admitted += 1;
                bench.check(&tokens, &mut || walker.below(12) + 1);
            }
            Ok(_) => {}
        }
    }
    println!("{format}: {NUM_MUTATED} mutated, {num_errors} errors, {num_admitted} let through");
    assert!(num_errors > NUM_ERRORS_MIN, "{num_errors} errors");
    assert!(
        num_admitted > NUM_MUTATED / 20,
        "{num_admitted} let through"
    );
}

#[test]
fn glm_walks_parse() {
    random_walks_parse(TagFormat::Glm);
}

#[test]
fn glm_errors_are_not_let_through() {
    errors_are_not_let_through(TagFormat::Glm);
}

#[test]
fn qwen_xml_walks_parse() {
    random_walks_parse(TagFormat::QwenXml);
}

#[test]
fn qwen_xml_errors_are_not_let_through() {
    errors_are_not_let_through(TagFormat::QwenXml);
}

#[test]
fn hermes_json_walks_parse() {
    random_walks_parse(TagFormat::HermesJson);
}

#[test]
fn hermes_json_errors_are_not_let_through() {
    errors_are_not_let_through(TagFormat::HermesJson);
}
