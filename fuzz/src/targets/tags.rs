//! No cut and no delivery changes what is read: the law of `engine/tags/src/format_tests.rs`, over texts
//! and schemas that nobody thought of.

use super::note_held;
use crate::decode::{pick, rest_text};
use arbitrary::{Arbitrary, Unstructured};
use lockstep_tags::{
    Delivery, Ended, Finished, ParserOptions, TagError, TagEvent, TagFormat, TagParser, ToolSet,
    json,
};
use std::sync::Arc;

/// What the formats write.
pub const DICTIONARY: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "{\"name\": \"go\", \"arguments\": {",
    "\"arguments\":",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "```json\n",
    "\n```",
    "<｜DSML｜tool_calls>",
    "<｜DSML｜invoke name=\"",
    "<｜DSML｜parameter name=\"",
    "\" string=\"true\">",
    "</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    "</｜DSML｜tool_calls>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "functions.go:0",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"",
    "</invoke>",
    "<parameter name=\"",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>",
    "analysis",
    "commentary",
    "final",
    "assistant",
    " to=functions.",
    "<|im_end|>",
    "<|endoftext|>",
    "<|user|>",
    "<|observation|>",
    "note",
    "pick",
    "go",
    "kind",
    "{\"type\":\"object\",\"properties\":{\"t\":{\"type\":\"string\"}}}",
    "\"anyOf\":[",
    "\"enum\":[",
    "\\u00e9",
    "null",
    "True",
    "1e5",
    "\u{0}",
];

#[derive(Arbitrary)]
struct Options {
    starts_in_reasoning: bool,
    reasoning: bool,
    stops_by_itself: bool,
    offers_tools: bool,
    /// Whether the text begins with a schema of the first tool, up to a zero byte.
    brings_schema: bool,
    /// Where the text is cut, as shares of its length.
    cuts: [u16; 3],
}

/// Everything that may not depend on the cut.
#[derive(Debug, PartialEq)]
struct Reading {
    reasoning: String,
    content: String,
    /// Complete calls: name and arguments.
    calls: Vec<(String, json::Value)>,
    result: Result<Finished, TagError>,
}

/// A format, a way to ask, where to cut, and a text.
pub fn tags(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let format = *pick(&mut input, &TagFormat::ALL);
    let Ok(options) = Options::arbitrary(&mut input) else {
        return;
    };
    let text = rest_text(input);
    let (schema, text) = match text.split_once('\0').filter(|_| options.brings_schema) {
        Some((schema, text)) => (schema, text),
        None => (NOTE, &text[..]),
    };
    let tools = [("note", Some(schema)), ("pick", Some(PICK)), ("go", None)];
    let num_tools = if options.offers_tools { 3 } else { 0 };
    let tools = tools.into_iter().take(num_tools);
    let Ok(tools) = ToolSet::new(tools.map(|(name, schema)| (name.to_string(), schema))) else {
        return;
    };
    note_held();
    let tools = Arc::new(tools);
    let ended = match options.stops_by_itself {
        true => Ended::Eos,
        false => Ended::Length,
    };
    let read = |pieces: &[&str], delivery| {
        let parser = TagParser::new(ParserOptions {
            format,
            starts_in_reasoning: options.starts_in_reasoning,
            reasoning: options.reasoning,
            delivery,
            tools: tools.clone(),
        });
        read(parser, pieces, ended)
    };
    let whole = read(&[text], Delivery::Whole);
    let characters: Vec<&str> = text.split_inclusive(|_| true).collect();
    let pieces = cut(text, &options.cuts);
    for delivery in [Delivery::Whole, Delivery::Eager] {
        for pieces in [&pieces, &characters] {
            let again = read(pieces, delivery);
            assert_eq!(again, whole, "{format}, {delivery:?}, {pieces:?}");
        }
    }
    assert!(whole.reasoning.len() + whole.content.len() <= text.len() + 64);
    if let Err(error) = &whole.result {
        assert!(error.offset <= text.len(), "{error:?} in {text:?}");
        assert!(text.contains(&error.markup), "{error:?} in {text:?}");
        assert!(!error.expected.is_empty());
    }
}

const NOTE: &str =
    r#"{"type":"object","properties":{"t":{"type":"string"},"n":{"type":"integer"}}}"#;
const PICK: &str = r#"{"anyOf":[
    {"properties":{"kind":{"const":"num"},"v":{"type":"integer"}}},
    {"properties":{"kind":{"const":"txt"},"v":{"type":"string"}}}]}"#;

/// The pieces of a text between cuts.
fn cut<'a>(text: &'a str, cuts: &[u16]) -> Vec<&'a str> {
    let place = |share: &u16| {
        let near = text.len() * usize::from(*share) / usize::from(u16::MAX);
        (0..=near)
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap_or(0)
    };
    let mut places: Vec<usize> = cuts.iter().map(place).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| &text[pair[0]..pair[1]])
        .collect()
}

fn read(mut parser: TagParser, pieces: &[&str], ended: Ended) -> Reading {
    let mut events = Vec::new();
    let pushed = pieces
        .iter()
        .try_for_each(|piece| parser.push(piece, &mut events));
    let result = pushed.and_then(|()| parser.finish(ended, &mut events));
    let (mut reasoning, mut content) = (String::new(), String::new());
    let mut calls: Vec<(String, json::Value)> = Vec::new();
    let mut open: Option<(u32, String, String)> = None;
    for event in events {
        match event {
            TagEvent::Reasoning(text) => reasoning.push_str(&text),
            TagEvent::Content(text) => content.push_str(&text),
            TagEvent::CallBegin { index, name } => {
                assert!(open.is_none(), "call {index} begins inside another");
                open = Some((index, name, String::new()));
            }
            TagEvent::CallArguments { index, fragment } => {
                let (begun, _, arguments) = open.as_mut().expect("a call has begun");
                assert_eq!(index, *begun);
                arguments.push_str(&fragment);
            }
            TagEvent::CallEnd { index } => {
                let (begun, name, arguments) = open.take().expect("a call has begun");
                assert_eq!((index, index as usize), (begun, calls.len()));
                let value = json::parse(&arguments, json::DEPTH_MAX + 1);
                let value = value.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
                assert!(matches!(value, json::Value::Object(_)), "{arguments:?}");
                calls.push((name, value));
            }
        }
    }
    if let Ok(finished) = &result {
        assert_eq!(finished.num_calls as usize, calls.len());
        assert!(open.is_none() || finished.dropped_call.is_some());
    }
    Reading {
        reasoning,
        content,
        calls,
        result,
    }
}
