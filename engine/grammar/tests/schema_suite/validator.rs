//! A plain validator of JSON Schema, written for the tests alone: no merging, no rewriting, numbers exact. Patterns
//! come from a table of predicates, so that no regular expression is read twice by the same code.

use serde_json::{Map, Value};

/// What a pattern means.
type Predicate = fn(&str) -> bool;

/// The patterns that random schemas use, and what each means.
pub const PATTERNS: &[(&str, Predicate)] = &[
    ("^a", |text| text.starts_with('a')),
    ("b$", |text| text.ends_with('b')),
    ("^[0-9]+$", |text| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
    }),
    ("^[ab]*$", |text| text.chars().all(|c| c == 'a' || c == 'b')),
    ("ab|\\d", |text| {
        text.contains("ab") || text.chars().any(|c| c.is_ascii_digit())
    }),
    ("^.$", |text| text.chars().count() == 1 && text != "\n"),
    ("^(?:a{2,}|\\w\\W)?$", |text| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let chars: Vec<char> = text.chars().collect();
        text.is_empty()
            || (chars.len() >= 2 && chars.iter().all(|c| *c == 'a'))
            || (chars.len() == 2 && is_word(chars[0]) && !is_word(chars[1]))
    }),
];

/// A number as a whole count of 10^-12.
fn exact(value: &Value) -> i128 {
    let text = value.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, places) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{places}").parse().expect("digits");
    let shift = 12 + exponent.parse::<i32>().expect("an exponent") - places.len() as i32;
    match u32::try_from(shift) {
        Ok(shift) => digits * 10_i128.pow(shift),
        Err(_) => {
            let scale = 10_i128.pow(shift.unsigned_abs());
            assert_eq!(
                digits % scale,
                0,
                "{text} has too many places for the tests"
            );
            digits / scale
        }
    }
}

/// Whether all numbers in a value are short enough to be exact here.
pub fn has_exact_numbers(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            digits <= 12 && !text.contains(['e', 'E'])
        }
        Value::Array(items) => items.iter().all(has_exact_numbers),
        Value::Object(members) => members.values().all(has_exact_numbers),
        _ => true,
    }
}

fn is_whole(value: &Value) -> bool {
    exact(value) % 10_i128.pow(12) == 0
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => exact(a) == exact(b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn has_type(word: &str, value: &Value) -> bool {
    match word {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_number() && is_whole(value),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other}"),
    }
}

/// Whether the pattern, one of the table, is found in the text.
pub fn is_found(pattern: &str, text: &str) -> bool {
    let entry = PATTERNS.iter().find(|(known, _)| *known == pattern);
    entry.unwrap_or_else(|| panic!("pattern {pattern}")).1(text)
}

/// Whether the value is valid under the schema.
pub fn is_valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let keywords = match schema {
        Value::Bool(all) => return *all,
        Value::Object(keywords) => keywords,
        other => panic!("schema {other}"),
    };
    if keywords.get("nullable") == Some(&Value::Bool(true)) && value.is_null() {
        return true;
    }
    keywords.iter().all(|(keyword, argument)| {
        holds(root, keywords, keyword, argument, value) && bounds_hold(keyword, argument, value)
    })
}

/// Keywords that apply schemas, and those of literals.
fn holds(
    root: &Value,
    keywords: &Map<String, Value>,
    keyword: &str,
    argument: &Value,
    value: &Value,
) -> bool {
    let fits = |schema: &Value, value: &Value| is_valid(root, schema, value);
    let list = || argument.as_array().expect("a list");
    match (keyword, value) {
        ("type", _) => match argument {
            Value::Array(words) => words
                .iter()
                .any(|word| has_type(word.as_str().expect("a word"), value)),
            word => has_type(word.as_str().expect("a word"), value),
        },
        ("const", _) => same(argument, value),
        ("enum", _) => list().iter().any(|literal| same(literal, value)),
        ("allOf", _) => list().iter().all(|schema| fits(schema, value)),
        ("anyOf", _) => list().iter().any(|schema| fits(schema, value)),
        ("oneOf", _) => list().iter().filter(|schema| fits(schema, value)).count() == 1,
        ("$ref", _) => {
            let pointer = argument
                .as_str()
                .expect("a reference")
                .trim_start_matches('#');
            fits(root.pointer(pointer).expect("a place in the schema"), value)
        }
        ("prefixItems", Value::Array(items)) => list()
            .iter()
            .zip(items)
            .all(|(schema, item)| fits(schema, item)),
        ("items", Value::Array(items)) => {
            let prefix = keywords
                .get("prefixItems")
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
            items.iter().skip(prefix).all(|item| fits(argument, item))
        }
        ("properties", Value::Object(members)) => members
            .iter()
            .all(|(key, member)| argument.get(key).is_none_or(|schema| fits(schema, member))),
        ("patternProperties", Value::Object(members)) => {
            let patterns = argument.as_object().expect("patterns");
            members.iter().all(|(key, member)| {
                patterns
                    .iter()
                    .all(|(pattern, schema)| !is_found(pattern, key) || fits(schema, member))
            })
        }
        ("additionalProperties", Value::Object(members)) => members.iter().all(|(key, member)| {
            let is_declared = keywords
                .get("properties")
                .is_some_and(|p| p.get(key).is_some());
            let patterns = keywords.get("patternProperties").and_then(Value::as_object);
            let is_matched =
                patterns.is_some_and(|p| p.keys().any(|pattern| is_found(pattern, key)));
            is_declared || is_matched || fits(argument, member)
        }),
        ("required", Value::Object(members)) => list()
            .iter()
            .all(|name| members.contains_key(name.as_str().expect("a name"))),
        _ => true,
    }
}

fn bounds_hold(keyword: &str, argument: &Value, value: &Value) -> bool {
    let count = |length: usize| length as u64;
    let limit = || argument.as_u64().expect("a count");
    match (keyword, value) {
        ("minimum", Value::Number(_)) => exact(value) >= exact(argument),
        ("maximum", Value::Number(_)) => exact(value) <= exact(argument),
        ("exclusiveMinimum", Value::Number(_)) => exact(value) > exact(argument),
        ("exclusiveMaximum", Value::Number(_)) => exact(value) < exact(argument),
        ("multipleOf", Value::Number(_)) => exact(value) % exact(argument) == 0,
        ("minLength", Value::String(text)) => count(text.chars().count()) >= limit(),
        ("maxLength", Value::String(text)) => count(text.chars().count()) <= limit(),
        ("pattern", Value::String(text)) => is_found(argument.as_str().expect("a pattern"), text),
        ("minItems", Value::Array(items)) => count(items.len()) >= limit(),
        ("maxItems", Value::Array(items)) => count(items.len()) <= limit(),
        ("minProperties", Value::Object(members)) => count(members.len()) >= limit(),
        ("maxProperties", Value::Object(members)) => count(members.len()) <= limit(),
        _ => true,
    }
}
