//! All bounds and steps of a grid against all texts of another: numbers are kept exactly as their schema says.

use lockstep_grammar::{SchemaLimits, checked_document};
use serde_json::{Map, Value};

use crate::recogniser::Recogniser;
use crate::validator::is_valid;

const BOUNDS: [&str; 14] = [
    "-100", "-10.5", "-9.99", "-2", "-1", "-0.5", "0", "0.05", "0.5", "1", "1.25", "9.5", "10",
    "101",
];

/// Texts of numbers near the bounds, in all their spellings without an exponent.
fn texts() -> Vec<String> {
    let mut texts = Vec::new();
    for size in [
        0, 1, 2, 3, 8, 9, 10, 11, 12, 19, 98, 99, 100, 101, 102, 110, 1000,
    ] {
        for places in [
            "", ".0", ".00", ".04", ".05", ".050", ".06", ".1", ".24", ".25", ".26", ".49", ".5",
            ".50", ".51", ".9", ".98", ".99", ".990", ".999",
        ] {
            texts.push(format!("{size}{places}"));
            texts.push(format!("-{size}{places}"));
        }
    }
    texts
}

/// Compares one schema on all texts; gives how many it takes.
fn compare(schema: &Value, texts: &[(String, Value)]) -> Option<[usize; 2]> {
    let document = checked_document(schema, &SchemaLimits::default()).ok()?;
    let recogniser = Recogniser::of_document(&document);
    let recogniser = recogniser.unwrap_or_else(|error| panic!("{schema} as {document}: {error}"));
    let mut counts = [0, 0];
    for (text, value) in texts {
        let is_taken = recogniser.accepts(text);
        let is_valid = is_valid(schema, schema, value);
        assert!(is_valid || !is_taken, "{schema} as {document} takes {text}");
        counts[0] += usize::from(is_taken);
        counts[1] += usize::from(is_valid);
    }
    Some(counts)
}

#[test]
fn bounds_and_steps_hold_on_a_grid() {
    let texts: Vec<(String, Value)> = texts()
        .into_iter()
        .map(|text| {
            let value = serde_json::from_str(&text).expect("a number");
            (text, value)
        })
        .collect();
    let ends = [None, Some(false), Some(true)];
    let (mut schemas, mut taken, mut valid) = (0, 0, 0);
    for (index, low) in BOUNDS.iter().enumerate() {
        for (offset, high) in BOUNDS[index..].iter().enumerate() {
            // Each pair of bounds with a few of the ends, types and steps, all of them in turn.
            for turn in [index + offset, index + offset + 4, 2 * index + offset + 8] {
                let mut schema = Map::new();
                let word = if turn % 3 == 0 { "integer" } else { "number" };
                schema.insert("type".into(), word.into());
                let number = |text: &str| serde_json::from_str::<Value>(text).expect("a number");
                for (name, bound, end) in [
                    ("Minimum", low, ends[turn % 3]),
                    ("Maximum", high, ends[turn / 3 % 3]),
                ] {
                    let key = match end {
                        None => continue,
                        Some(true) => format!("exclusive{name}"),
                        Some(false) => name.to_lowercase(),
                    };
                    schema.insert(key, number(bound));
                }
                let step = [
                    None,
                    None,
                    Some("0.5"),
                    Some("3"),
                    Some("0.05"),
                    Some("1.5"),
                    Some("10"),
                ][turn % 7];
                step.map(|step| schema.insert("multipleOf".into(), number(step)));
                if let Some(counts) = compare(&Value::Object(schema), &texts) {
                    schemas += 1;
                    taken += counts[0];
                    valid += counts[1];
                }
            }
        }
    }
    assert!(
        schemas > 200 && taken > 10_000,
        "{schemas} schemas took {taken} of {valid}"
    );
    // What is not taken are whole numbers with places, where none are asked for.
    assert!(
        taken * 10 > valid * 7,
        "{schemas} schemas took {taken} of {valid}"
    );
}
