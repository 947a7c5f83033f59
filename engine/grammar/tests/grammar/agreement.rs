//! Grammar and parser agree. What a random walk through the masks has written to its end is read, however it is
//! cut, as calls that fit their schemas; and what a parser can't read, no mask lets through.

use crate::outline::{Asked, asked};
use crate::shapes::parameters;
use crate::toy::{END, PIECES, VOCAB_SIZE, VOCABULARY, mask, spelled, text};
use crate::walker::Walker;
use lockstep_grammar::{Boundary, Compiler, GrammarLimits, Reasoning, ToolChoice};
use lockstep_step::{Matcher, TokenId};
use lockstep_tags::{
    Delivery, Ended, ParserOptions, TagError, TagEvent, TagFormat, TagParser, ToolSet, json,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use std::sync::Arc;

/// Walks that must come to their end, per format.
const NUM_WALKS: usize = 10_000;
/// Constraints that they are spread over.
const NUM_CONSTRAINTS: usize = 100;
/// Longer walks are given up, and not counted.
const TOKENS_MAX: usize = 400;

/// A constraint, with what reads its outputs.
struct Bench {
    asked: Asked,
    tools: Arc<ToolSet>,
    begin: Box<dyn Fn() -> Boundary>,
}

/// Constraints of one format, the same ones each time.
fn benches(format: TagFormat) -> Vec<Bench> {
    let mut runner = TestRunner::deterministic();
    let answer = proptest::option::weighted(0.1, parameters());
    let strategy = (asked(format), answer).prop_map(|(asked, answer)| Asked { answer, ..asked });
    let compiler = Arc::new(Compiler::new(VOCABULARY.clone(), GrammarLimits::default()));
    let mut benches = Vec::new();
    while benches.len() < NUM_CONSTRAINTS {
        let asked = strategy.new_tree(&mut runner).expect("a case").current();
        let constraint = asked.constraint();
        if compiler.matcher(&constraint).is_err() {
            continue;
        }
        let schemas: Vec<(String, String)> = asked
            .tools
            .iter()
            .map(|(name, parameters)| ((*name).to_string(), parameters.schema().to_string()))
            .collect();
        let tools = schemas
            .iter()
            .map(|(name, schema)| (name.clone(), Some(schema.as_str())));
        let compiler = compiler.clone();
        benches.push(Bench {
            tools: Arc::new(ToolSet::new(tools).expect("tools with schemas")),
            begin: Box::new(move || {
                let boundary = compiler.matcher(&constraint).expect("it was compiled");
                boundary.expect("it holds something")
            }),
            asked,
        });
    }
    benches
}

/// What a parser read.
#[derive(Debug, Default, PartialEq)]
struct Read {
    reasoning: String,
    content: String,
    calls: Vec<(String, String)>,
    num_ended: u32,
}

impl Bench {
    /// Walks to the end; None if that takes too many tokens.
    fn walk(&self, walker: &mut Walker) -> Option<Vec<TokenId>> {
        let mut boundary = (self.begin)();
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

    /// Whether an output of these tokens is let through to its end.
    fn admits(&self, tokens: &[TokenId]) -> bool {
        let mut boundary = (self.begin)();
        tokens.iter().all(|&token| boundary.consume(token).is_ok()) && boundary.can_finish()
    }

    fn read(&self, said: &str, delivery: Delivery, walker: &mut Walker) -> Result<Read, TagError> {
        let mut parser = TagParser::new(ParserOptions {
            format: self.asked.format,
            starts_in_reasoning: self.asked.reasoning == Reasoning::Open,
            reasoning: self.asked.reasoning != Reasoning::Off,
            delivery,
            tools: self.tools.clone(),
        });
        let mut events = Vec::new();
        let mut rest = said;
        while !rest.is_empty() {
            let mut len = match delivery {
                Delivery::Whole => rest.len(),
                Delivery::Eager => walker.below(12) + 1,
            };
            while !rest.is_char_boundary(len.min(rest.len())) {
                len += 1;
            }
            let (piece, after) = rest.split_at(len.min(rest.len()));
            parser.push(piece, &mut events)?;
            rest = after;
        }
        let finished = parser.finish(Ended::Eos, &mut events)?;
        let mut read = Read::default();
        for event in events {
            match event {
                TagEvent::Reasoning(text) => read.reasoning.push_str(&text),
                TagEvent::Content(text) => read.content.push_str(&text),
                TagEvent::CallBegin { index, name } => {
                    assert_eq!(index as usize, read.calls.len());
                    read.calls.push((name, String::new()));
                }
                TagEvent::CallArguments { index, fragment } => {
                    read.calls[index as usize].1.push_str(&fragment);
                }
                TagEvent::CallEnd { .. } => read.num_ended += 1,
            }
        }
        assert_eq!(finished.num_calls, read.num_ended);
        assert_eq!(finished.dropped_call, None);
        Ok(read)
    }

    /// Reads an output that was let through, and checks all that it must be.
    fn check(&self, tokens: &[TokenId], walker: &mut Walker) -> Read {
        let said = told(tokens);
        let asked = &self.asked;
        let [whole, eager] = [Delivery::Whole, Delivery::Eager].map(|delivery| {
            self.read(&said, delivery, walker)
                .unwrap_or_else(|error| panic!("{said:?} as {delivery:?}: {error:?}\n{asked:?}"))
        });
        assert_eq!(whole, eager, "{said:?}");
        let num_opened = tokens
            .iter()
            .filter(|token| text(**token) == b"<tool_call>")
            .count();
        assert_eq!(whole.calls.len(), num_opened, "{said:?}\n{asked:?}");
        assert_eq!(whole.num_ended as usize, num_opened, "{said:?}\n{asked:?}");
        for (name, arguments) in &whole.calls {
            let tool = asked.tools.iter().find(|(tool, _)| tool == name);
            let (_, parameters) = tool.unwrap_or_else(|| panic!("{name:?} in {said:?}"));
            let value = json::parse(arguments, 64).map(plain);
            let value = value.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
            assert!(parameters.admits(&value), "{value} in {said:?}\n{asked:?}");
            if let ToolChoice::Named(chosen) = &asked.choice {
                assert_eq!(chosen, name);
            }
        }
        match asked.choice {
            ToolChoice::Forbidden => assert_eq!(num_opened, 0, "{said:?}"),
            ToolChoice::Required | ToolChoice::Named(_) => {
                assert!(num_opened > 0, "{said:?}");
                assert_eq!(whole.content.trim(), "", "{said:?}");
            }
            ToolChoice::Auto => {}
        }
        assert!(asked.parallel || num_opened < 2, "{said:?}");
        let opens = |text: &str| {
            text.contains("<tool_call>")
                || (asked.format == TagFormat::QwenXml && text.contains("<function="))
        };
        assert!(
            !opens(&whole.content) && !opens(&whole.reasoning),
            "{said:?}"
        );
        if let Some(answer) = &asked.answer
            && num_opened == 0
        {
            let value = json::parse(&whole.content, 64).map(plain);
            let value = value.unwrap_or_else(|error| panic!("{said:?}: {error}"));
            assert!(answer.admits(&value), "{value} in {said:?}\n{asked:?}");
        }
        whole
    }
}

fn told(tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| text(token)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The same value with numbers as doubles, as near as those come.
fn plain(value: json::Value) -> Value {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(value) => value.into(),
        json::Value::Number(text) => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => whole.into(),
            (_, Ok(number)) if number.is_finite() => number.into(),
            _ => 1e300.into(),
        },
        json::Value::String(text) => text.into(),
        json::Value::Array(items) => items.into_iter().map(plain).collect(),
        json::Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| (key, plain(value)));
            Value::Object(members.collect())
        }
    }
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
            match bench.walk(&mut walker) {
                Some(tokens) => break tokens,
                None => count.dropped += 1,
            }
        };
        let read = bench.check(&tokens, &mut walker);
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
            walked = std::iter::repeat_with(|| bench.walk(&mut walker))
                .flatten()
                .find(|tokens| tokens.len() > 3 || bench.asked.choice == ToolChoice::Forbidden)
                .unwrap_or_default();
        }
        let tokens = mutated(&walked, &mut walker);
        let admitted = bench.admits(&tokens);
        let said = told(&tokens);
        match bench.read(&said, Delivery::Whole, &mut walker) {
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
                bench.check(&tokens, &mut walker);
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
