//! Random schemas and random instances: whatever a compiled grammar takes, the plain validator calls valid.

use std::cell::Cell;

use lockstep_grammar::{SchemaLimits, checked_document};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::recogniser::{Recogniser, spaced};
use crate::validator::{PATTERNS, is_valid};

/// Choices, one after the other; zeros once they are used up, so that shorter tapes make smaller schemas.
pub struct Tape<'a> {
    choices: &'a [u16],
    pos: usize,
}

impl Tape<'_> {
    pub fn new(choices: &[u16]) -> Tape<'_> {
        Tape { choices, pos: 0 }
    }

    pub fn below(&mut self, count: usize) -> usize {
        let choice = self.choices.get(self.pos).copied().unwrap_or(0);
        self.pos += 1;
        usize::from(choice) % count
    }

    fn one<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    pub fn chance(&mut self, in_ten: usize) -> bool {
        self.below(10) >= 10 - in_ten
    }
}

const KEYS: [&str; 4] = ["a", "b", "ab", "x"];
const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

fn number(tape: &mut Tape) -> Value {
    let numbers = [
        json!(0),
        json!(1),
        json!(2),
        json!(-1),
        json!(3),
        json!(10),
        json!(-7),
        json!(0.5),
        json!(-0.5),
        json!(1.5),
        json!(0.25),
        json!(2.75),
        json!(99),
        json!(100),
        json!(0.01),
        json!(-1.25),
        json!(12.5),
        json!(0.1),
        json!(0.3),
        json!(-10),
        json!(1000000),
        json!(0.001),
        json!(9.99),
        json!(-0.05),
    ];
    tape.one(&numbers)
}

fn text(tape: &mut Tape) -> Value {
    let texts = [
        "", "a", "b", "ab", "ba", "aa", "aab", "1", "a b", "日", "\n", "a-", "x\"y", "null", "[1]",
        "1.5",
    ];
    json!(tape.one(&texts))
}

/// A random value.
pub fn value(tape: &mut Tape, depth: usize) -> Value {
    match tape.below(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(tape.chance(5)),
        2 | 3 => number(tape),
        4 => text(tape),
        5 => {
            let length = tape.below(4);
            Value::Array((0..length).map(|_| value(tape, depth - 1)).collect())
        }
        _ => {
            let mut members = Map::new();
            for key in KEYS {
                if tape.chance(4) {
                    members.insert(key.to_string(), value(tape, depth - 1));
                }
            }
            Value::Object(members)
        }
    }
}

fn number_keywords(tape: &mut Tape, out: &mut Map<String, Value>) {
    for keyword in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
        if tape.chance(3) {
            out.insert(keyword.into(), number(tape));
        }
    }
    if tape.chance(2) {
        let steps = [
            json!(2),
            json!(3),
            json!(0.5),
            json!(0.1),
            json!(0.01),
            json!(10),
            json!(1),
            json!(1.5),
        ];
        out.insert("multipleOf".into(), tape.one(&steps));
    }
}

fn string_keywords(tape: &mut Tape, out: &mut Map<String, Value>) {
    if tape.chance(3) {
        out.insert("minLength".into(), json!(tape.below(3)));
    }
    if tape.chance(3) {
        out.insert("maxLength".into(), json!(tape.below(4)));
    }
    if tape.chance(4) {
        out.insert("pattern".into(), json!(tape.one(PATTERNS).0));
    }
}

fn array_keywords(tape: &mut Tape, out: &mut Map<String, Value>, depth: usize) {
    if tape.chance(4) {
        let length = 1 + tape.below(3);
        let prefix: Vec<Value> = (0..length).map(|_| schema(tape, depth)).collect();
        out.insert("prefixItems".into(), prefix.into());
    }
    if tape.chance(6) {
        out.insert("items".into(), schema(tape, depth));
    }
    if tape.chance(3) {
        out.insert("minItems".into(), json!(tape.below(4)));
    }
    if tape.chance(3) {
        out.insert("maxItems".into(), json!(tape.below(4)));
    }
}

fn object_keywords(tape: &mut Tape, out: &mut Map<String, Value>, depth: usize) {
    let mut properties = Map::new();
    for key in KEYS {
        if tape.chance(4) {
            properties.insert(key.into(), schema(tape, depth));
        }
    }
    if !properties.is_empty() {
        out.insert("properties".into(), properties.into());
    }
    if tape.chance(2) {
        let patterns = Map::from_iter([(tape.one(PATTERNS).0.to_string(), schema(tape, depth))]);
        out.insert("patternProperties".into(), patterns.into());
    }
    match tape.below(4) {
        0 => {}
        1 | 2 => drop(out.insert("additionalProperties".into(), json!(false))),
        _ => drop(out.insert("additionalProperties".into(), schema(tape, depth))),
    }
    let required: Vec<&str> = KEYS.into_iter().filter(|_| tape.chance(2)).collect();
    if !required.is_empty() {
        out.insert("required".into(), json!(required));
    }
    if tape.chance(2) {
        out.insert("minProperties".into(), json!(tape.below(4)));
    }
    if tape.chance(2) {
        out.insert("maxProperties".into(), json!(tape.below(4)));
    }
}

/// A random schema of the keywords that are enforced, or may be.
pub fn schema(tape: &mut Tape, depth: usize) -> Value {
    let mut out = Map::new();
    if depth == 0 {
        return match tape.below(4) {
            0 => json!(true),
            1 => json!({"const": value(tape, 0)}),
            2 => json!({"type": tape.one(&TYPES)}),
            _ => json!({"enum": [value(tape, 0), value(tape, 1), value(tape, 0)]}),
        };
    }
    let depth = depth - 1;
    let kinds = 1 + usize::from(tape.chance(3)) + usize::from(tape.chance(1));
    for _ in 0..kinds {
        match tape.below(16) {
            0 => drop(out.insert("type".into(), json!(tape.one(&TYPES)))),
            1 => drop(out.insert("type".into(), json!([tape.one(&TYPES), tape.one(&TYPES)]))),
            2 => drop(out.insert("const".into(), value(tape, 2))),
            3 => {
                let count = 1 + tape.below(5);
                let values: Vec<Value> = (0..count).map(|_| value(tape, 1)).collect();
                out.insert("enum".into(), values.into());
            }
            4 | 5 => {
                out.insert("type".into(), json!(tape.one(&["integer", "number"])));
                number_keywords(tape, &mut out);
            }
            6 | 7 => {
                out.insert("type".into(), json!("string"));
                string_keywords(tape, &mut out);
            }
            8 | 9 => {
                out.insert("type".into(), json!("array"));
                array_keywords(tape, &mut out, depth);
            }
            10 | 11 => {
                out.insert("type".into(), json!("object"));
                object_keywords(tape, &mut out, depth);
            }
            12 => {
                let keyword = tape.one(&["anyOf", "oneOf", "allOf", "anyOf"]);
                let count = 1 + tape.below(3);
                let branches: Vec<Value> = (0..count).map(|_| schema(tape, depth)).collect();
                out.insert(keyword.into(), branches.into());
            }
            13 => drop(out.insert(
                "$ref".into(),
                json!(tape.one(&["#/$defs/p", "#/$defs/q", "#"])),
            )),
            14 => {
                number_keywords(tape, &mut out);
                string_keywords(tape, &mut out);
                array_keywords(tape, &mut out, depth);
                object_keywords(tape, &mut out, depth);
            }
            _ => drop(out.insert("nullable".into(), json!(true))),
        }
    }
    Value::Object(out)
}

/// A random schema with definitions.
pub fn rooted(tape: &mut Tape) -> Value {
    let mut root = schema(tape, 3);
    let definitions = json!({"p": schema(tape, 2), "q": schema(tape, 1)});
    if let Value::Object(keywords) = &mut root {
        keywords.insert("$defs".into(), definitions);
    }
    root
}

/// A value that is often valid under the schema.
fn near(tape: &mut Tape, root: &Value, schema: &Value, depth: usize) -> Value {
    let Value::Object(keywords) = schema else {
        return value(tape, 1);
    };
    if depth == 0 || tape.chance(1) {
        return value(tape, 1);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = keywords.get(keyword)
            && tape.chance(7)
        {
            let branch = branches[tape.below(branches.len())].clone();
            return near(tape, root, &branch, depth - 1);
        }
    }
    if let Some(Value::String(target)) = keywords.get("$ref")
        && tape.chance(7)
        && let Some(target) = root.pointer(target.trim_start_matches('#'))
    {
        return near(tape, root, target, depth - 1);
    }
    if let Some(literal) = keywords.get("const") {
        return literal.clone();
    }
    if let Some(Value::Array(values)) = keywords.get("enum") {
        return values[tape.below(values.len())].clone();
    }
    let word = match keywords.get("type") {
        Some(Value::Array(words)) => words[tape.below(words.len())].clone(),
        Some(word) => word.clone(),
        None => json!(tape.one(&["array", "object", "string", "number"])),
    };
    match word.as_str() {
        Some("null") => Value::Null,
        Some("boolean") => json!(tape.chance(5)),
        Some("integer" | "number") => number(tape),
        Some("string") => text(tape),
        Some("array") => {
            let prefix = keywords
                .get("prefixItems")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            let items = keywords.get("items").cloned().unwrap_or(json!(true));
            let length = tape.below(4);
            let mut item =
                |index: usize| near(tape, root, prefix.get(index).unwrap_or(&items), depth - 1);
            (0..length).map(&mut item).collect()
        }
        _ => {
            let mut members = Map::new();
            let properties = keywords
                .get("properties")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            let required = keywords.get("required").cloned().unwrap_or(json!([]));
            let required = |key: &str| {
                required
                    .as_array()
                    .is_some_and(|list| list.contains(&json!(key)))
            };
            for (key, property) in &properties {
                if required(key) || tape.chance(5) {
                    members.insert(key.clone(), near(tape, root, property, depth - 1));
                }
            }
            let rest = keywords
                .get("additionalProperties")
                .cloned()
                .unwrap_or(json!(true));
            for key in KEYS {
                if !properties.contains_key(key) && (required(key) || tape.chance(1)) {
                    members.insert(key.into(), near(tape, root, &rest, depth - 1));
                }
            }
            Value::Object(members)
        }
    }
}

/// Cases of one run; `LOCKSTEP_CASES` asks for more.
pub fn runner(cases: u32) -> TestRunner {
    let asked = std::env::var("LOCKSTEP_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    TestRunner::new(Config {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        ..Config::default()
    })
}

#[test]
fn what_a_grammar_takes_is_valid() {
    let [enforced, refused, valid, taken, kept_out] = [const { Cell::new(0_usize) }; 5];
    let count = |cell: &Cell<usize>| cell.set(cell.get() + 1);
    let tapes = proptest::collection::vec(any::<u16>(), 0..300);
    let result = runner(600).run(&tapes, |choices| {
        let mut tape = Tape::new(&choices);
        let root = rooted(&mut tape);
        let Ok(document) = checked_document(&root, &SchemaLimits::default()) else {
            count(&refused);
            return Ok(());
        };
        let recogniser = match Recogniser::of_document(&document) {
            Ok(recogniser) => recogniser,
            Err(error) => {
                return Err(TestCaseError::fail(format!(
                    "{root} as {document}: {error}"
                )));
            }
        };
        count(&enforced);
        for _ in 0..16 {
            let value = near(&mut tape, &root, &root, 6);
            let is_taken =
                [value.to_string(), spaced(&value)].map(|text| recogniser.accepts(&text));
            prop_assert_eq!(
                is_taken[0],
                is_taken[1],
                "{} and spacing of {}",
                root,
                value
            );
            let is_valid = is_valid(&root, &root, &value);
            count(match (is_valid, is_taken[0]) {
                (true, true) => &taken,
                (true, false) => &valid,
                (false, false) => &kept_out,
                (false, true) => {
                    return Err(TestCaseError::fail(format!(
                        "{root} as {document} takes {value}"
                    )));
                }
            });
        }
        Ok(())
    });
    let counts = [&enforced, &refused, &taken, &valid, &kept_out].map(Cell::get);
    println!("enforced, refused, taken, valid but not taken, kept out: {counts:?}");
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(
        counts[0] > 150 && counts[2] > 500 && counts[4] > 300,
        "{counts:?}"
    );
    // What is valid and not taken differs in the order of its keys, or nearly always does.
    assert!(counts[3] * 10 < counts[2], "{counts:?}");
}
