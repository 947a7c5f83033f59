//! A mask is what trying every token finds, and trying leaves no trace. For schemas of tools also what the
//! plain recogniser of `engine/grammar/tests/grammar/outline.rs` finds; for texts of grammars, schemas and
//! regular expressions of any kind, that they are refused by name or can be walked.

use super::asked::{COMPILER, Reader, asked};
use super::note_held;
use crate::bench::told;
use crate::decode::byte;
use crate::outline::Outline;
use crate::toy::{END, VOCAB_SIZE, constraint};
use arbitrary::Unstructured;
use lockstep_grammar::{Answer, Boundary, Constraint, ToolChoice};
use lockstep_step::{Bitmask, Matcher, MatcherError, TokenId};
use lockstep_tags::TagFormat;

/// What schemas, regular expressions and grammars write.
pub const DICTIONARY: &[&str] = &[
    "{\"type\": \"object\", \"properties\": {",
    "\"type\": \"string\"",
    "\"pattern\": \"",
    "\"enum\": [",
    "\"anyOf\": [",
    "\"$ref\": \"#/$defs/a\"",
    "\"$defs\": {\"a\": ",
    "\"minItems\": 2",
    "\"additionalProperties\": false",
    "\"format\": \"date\"",
    "\"minimum\": -1.5",
    "start: ",
    "\n",
    "\u{0}",
    "[a-z]+",
    "(a|b)*",
    "{2,5}",
    "\\w",
    "(?i)",
    "%ignore",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "<arg_value>",
];

/// Tokens of one walk, at most; every token is tried at each.
const TOKENS_MAX: usize = 24;

/// A constraint, and a text to walk by.
pub fn masks(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let (constraint, outline) = match byte(&mut input) % 4 {
        0 => {
            let asked = asked(&mut input);
            (asked.constraint(), Some(Outline::new(&asked)))
        }
        kind => {
            let rest = input.take_rest();
            let (source, walk) = match rest.iter().position(|&byte| byte == 0) {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, &[][..]),
            };
            input = Unstructured::new(walk);
            let Some(constraint) = free_form(kind, source) else {
                return;
            };
            (constraint, None)
        }
    };
    let boundary = match COMPILER.matcher(&constraint) {
        Ok(Some(boundary)) => boundary,
        Ok(None) => return,
        Err(error) => {
            assert!(!error.kind.is_empty() && !error.message.is_empty());
            return;
        }
    };
    walk(boundary, outline, input.take_rest());
}

/// A constraint on the answer alone, whose source is text.
fn free_form(kind: u8, source: &[u8]) -> Option<Constraint> {
    let text = std::str::from_utf8(source).ok()?;
    let answer = match kind {
        1 => Answer::JsonSchema(serde_json::from_str(text).ok()?),
        2 => Answer::Regex(text.to_string()),
        _ => Answer::Lark(text.to_string()),
    };
    Some(Constraint {
        answer,
        ..constraint(TagFormat::Glm, Vec::new(), ToolChoice::Auto)
    })
}

fn walk(mut boundary: Boundary, outline: Option<Outline>, text: &[u8]) {
    let mut reader = Reader::new(text);
    let mut spot = outline.as_ref().map(Outline::begin);
    let mut taken: Vec<TokenId> = Vec::new();
    let mut first: Option<Bitmask> = None;
    while taken.len() < TOKENS_MAX {
        let Some(here) = fill(&mut boundary) else {
            return;
        };
        note_held();
        first.get_or_insert_with(|| here.clone());
        if let (Some(outline), Some(spot)) = (&outline, &spot) {
            assert_eq!(here, outline.mask(spot), "after {:?}", told(&taken));
        }
        if !try_all(&mut boundary, &here, &taken) {
            return;
        }
        let token = reader.choose(&here);
        if token == END {
            assert!(here.allows(END), "nothing may follow {:?}", told(&taken));
            break;
        }
        if boundary.consume(token).is_err() {
            return;
        }
        spot = match (&outline, &spot) {
            (Some(outline), Some(spot)) => Some(outline.step(spot, token).expect("allowed")),
            _ => None,
        };
        taken.push(token);
        assert_eq!(boundary.depth() as usize, taken.len());
    }
    boundary.rollback(taken.len() as u32);
    assert_eq!(boundary.depth(), 0);
    assert_eq!(fill(&mut boundary), first, "after all of it was taken back");
}

/// The mask; None if the grammar has become too expensive, which is a named end of a sequence.
fn fill(boundary: &mut Boundary) -> Option<Bitmask> {
    let mut mask = Bitmask::none(VOCAB_SIZE);
    match boundary.fill(&mut mask) {
        Ok(()) => Some(mask),
        Err(MatcherError::Broken(message)) => {
            assert!(!message.is_empty());
            None
        }
        Err(error) => panic!("a mask is refused: {error}"),
    }
}

/// Tries every token, and takes it back. False if the grammar has become too expensive.
fn try_all(boundary: &mut Boundary, here: &Bitmask, taken: &[TokenId]) -> bool {
    let depth = boundary.depth();
    for token in (0..VOCAB_SIZE).map(TokenId) {
        if token == END {
            assert_eq!(here.allows(END), boundary.can_finish());
            continue;
        }
        match boundary.consume(token) {
            Ok(()) => boundary.rollback(1),
            Err(MatcherError::Broken(_)) => return false,
            Err(MatcherError::Rejected(refused)) => {
                assert_eq!(refused, token);
                assert!(!here.allows(token), "{token} after {:?}", told(taken));
                continue;
            }
        }
        assert!(here.allows(token), "{token} after {:?}", told(taken));
        assert_eq!(boundary.depth(), depth);
    }
    match fill(boundary) {
        Some(again) => {
            assert_eq!(*here, again, "after trying, at {:?}", told(taken));
            true
        }
        None => false,
    }
}
