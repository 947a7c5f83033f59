//! How one parameter is written where strings are raw and all else is JSON. It must never admit a raw text that the
//! parser of `lockstep-tags` would read as something else; `typed_as` mirrors how it reads.

use std::collections::BTreeSet;

use serde_json::Value;

use super::node::{StringRule, Types};
use super::number::NumberRule;
use super::pattern::{Matcher, Pattern, TooComplex};
use super::solution::{Alternative, Array, Object};
use super::solve::WRITABLE;
use super::{RawText, SchemaError};

/// The types by which the parser reads raw text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadAs {
    /// It knows nothing: JSON if it parses, text otherwise.
    Unknown,
    /// At most these types.
    Known(Types),
}

impl ReadAs {
    pub(super) fn and(self, other: ReadAs) -> ReadAs {
        match (self, other) {
            (ReadAs::Unknown, other) | (other, ReadAs::Unknown) => other,
            (ReadAs::Known(a), ReadAs::Known(b)) => ReadAs::Known(a.and(b)),
        }
    }

    pub(super) fn or(self, other: ReadAs) -> ReadAs {
        match (self, other) {
            (ReadAs::Known(a), ReadAs::Known(b)) => ReadAs::Known(a.or(b)),
            _ => ReadAs::Unknown,
        }
    }

    /// Patterns of the texts that are read as something other than themselves.
    fn typed_texts(self) -> Vec<String> {
        const WHOLE: &str = "-?(?:0|[1-9][0-9]*)";
        let types = match self {
            ReadAs::Unknown => Types::ALL,
            ReadAs::Known(Types::STRING) => return Vec::new(),
            ReadAs::Known(types) => types,
        };
        let blanks = "[ \\t\\r\\n]*";
        let mut out = Vec::new();
        let mut put = |types_of: Types, regex: &str| {
            if types.meets(types_of) {
                out.push(format!("{blanks}{regex}"));
            }
        };
        put(Types::NULL, &format!("null{blanks}"));
        put(Types::BOOLEAN, &format!("(?:true|false){blanks}"));
        put(Types::INTEGER, &format!("{WHOLE}(?:\\.0+)?{blanks}"));
        put(
            Types::NUMBER,
            &format!("{WHOLE}(?:\\.[0-9]+)?[eE][+\\-]?[0-9]+{blanks}"),
        );
        put(Types::FRACTION, &format!("{WHOLE}(?:\\.[0-9]+)?{blanks}"));
        put(Types::ARRAY, "\\[(?s:.)*");
        put(Types::OBJECT, "\\{(?s:.)*");
        if self == ReadAs::Unknown {
            put(Types::STRING, "\\x{22}(?s:.)*");
        }
        out
    }
}

/// The types that the parser takes from a schema. Never fewer than it does.
pub(super) fn typed_as(root: &Value, node: &Value) -> ReadAs {
    let mut reader = TypeReader {
        root,
        open: BTreeSet::new(),
        steps_left: STEPS_MAX,
    };
    reader.read(node)
}

/// The types that the parser takes from what the schema of the arguments says about one of them.
pub(super) fn typed_as_parameter(root: &Value, name: &str) -> ReadAs {
    let (mut read, mut pending, mut steps) = (ReadAs::Unknown, vec![root], 0);
    let mut followed = BTreeSet::new();
    while let Some(node) = pending.pop() {
        steps += 1;
        if steps > STEPS_MAX {
            return ReadAs::Unknown;
        }
        if let Some(property) = node
            .get("properties")
            .and_then(|properties| properties.get(name))
        {
            read = read.and(typed_as(root, property));
        }
        if let Some(Value::String(target)) = node.get("$ref")
            && followed.insert(target)
        {
            pending.extend(
                target
                    .strip_prefix('#')
                    .and_then(|pointer| root.pointer(pointer)),
            );
        }
        pending.extend(
            node.get("allOf")
                .and_then(Value::as_array)
                .into_iter()
                .flatten(),
        );
    }
    read
}

/// What of an alternative is written as JSON.
pub(super) fn without_strings(alternative: &Alternative) -> Vec<Alternative> {
    match alternative {
        Alternative::Any => vec![
            Alternative::Null,
            Alternative::Boolean,
            Alternative::Number(NumberRule::default()),
            Alternative::Array(Array {
                prefix: Vec::new(),
                items: Vec::new(),
                min: 0,
                max: None,
            }),
            Alternative::Object(Object {
                properties: Vec::new(),
                patterns: Vec::new(),
                rest: Some(Vec::new()),
                min: 0,
                max: None,
            }),
        ],
        Alternative::String(_) => Vec::new(),
        Alternative::Literals(values) => {
            let others: Vec<Value> = values
                .iter()
                .filter(|value| !value.is_string())
                .cloned()
                .collect();
            match others.is_empty() {
                true => Vec::new(),
                false => vec![Alternative::Literals(others)],
            }
        }
        other => vec![other.clone()],
    }
}

/// Steps that reading the types of one parameter may take.
const STEPS_MAX: usize = 20_000;

struct TypeReader<'a> {
    root: &'a Value,
    /// References that are being followed.
    open: BTreeSet<&'a str>,
    steps_left: usize,
}

impl<'a> TypeReader<'a> {
    fn read(&mut self, node: &'a Value) -> ReadAs {
        // Deep references end as unknown, which excludes the most.
        const OPEN_MAX: usize = 64;
        if self.steps_left == 0 || self.open.len() > OPEN_MAX {
            return ReadAs::Unknown;
        }
        self.steps_left -= 1;
        let mut read = named(node.get("type"));
        let listed = |values: &[Value]| {
            ReadAs::Known(
                values
                    .iter()
                    .fold(Types::NONE, |types, value| types.or(of_literal(value))),
            )
        };
        if let Some(value) = node.get("const") {
            read = read.and(listed(std::slice::from_ref(value)));
        }
        if let Some(Value::Array(values)) = node.get("enum") {
            read = read.and(listed(values));
        }
        if let Some(Value::String(target)) = node.get("$ref")
            && let Some(pointer) = target.strip_prefix('#')
            && let Some(referred) = self.root.pointer(pointer)
            && self.open.insert(target)
        {
            read = read.and(self.read(referred));
            self.open.remove(target.as_str());
        }
        for part in node
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            read = read.and(self.read(part));
        }
        for union in ["anyOf", "oneOf"] {
            let branches = node
                .get(union)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let either = branches.map(|branch| self.read(branch)).reduce(ReadAs::or);
            read = read.and(either.unwrap_or(ReadAs::Unknown));
        }
        if node.get("nullable") == Some(&Value::Bool(true)) {
            read = read.or(ReadAs::Known(Types::NULL));
        }
        read
    }
}

fn of_literal(value: &Value) -> Types {
    match value {
        Value::Number(_) => Types::NUMBER,
        value => Types::of(value),
    }
}

fn named(word: Option<&Value>) -> ReadAs {
    let words = match word {
        Some(Value::Array(words)) => words.as_slice(),
        Some(word) => std::slice::from_ref(word),
        None => return ReadAs::Unknown,
    };
    let mut types = Types::NONE;
    for word in words {
        match word.as_str().and_then(Types::named) {
            Some(named) => types = types.or(named),
            None => return ReadAs::Unknown,
        }
    }
    ReadAs::Known(types)
}

/// The raw texts that the strings of the alternatives may be; `None` if there are none.
pub(super) fn raw_text(
    path: &str,
    alternatives: &[Alternative],
    read_as: ReadAs,
) -> Result<Option<RawText>, SchemaError> {
    if alternatives.contains(&Alternative::Any) && read_as == ReadAs::Unknown {
        // Whatever is written is read as a value that is valid.
        let expression = "/(?s:.*)/".to_string();
        return Ok(Some(RawText {
            expression,
            admits_empty: true,
        }));
    }
    let (typed, matcher) = (read_as.typed_texts(), Matcher::default());
    let mut options: Vec<String> = Vec::new();
    let mut admits_empty = false;
    for alternative in alternatives {
        match alternative {
            Alternative::Any => {
                options.push("/(?s:.*)/".to_string());
                admits_empty = true;
            }
            Alternative::String(rule) => {
                if !has_raw_text(rule, &typed).map_err(|_| too_complex(path))? {
                    continue;
                }
                options.push(expression(rule));
                admits_empty |= rule.admits("", &matcher).map_err(|_| too_complex(path))?;
            }
            Alternative::Literals(values) => {
                for text in values.iter().filter_map(Value::as_str) {
                    if !is_typed(text, &typed, &matcher).map_err(|_| too_complex(path))? {
                        admits_empty |= text.is_empty();
                        options.push(Value::from(text).to_string());
                    }
                }
            }
            _ => {}
        }
    }
    let mut whole = match options.as_slice() {
        [] => return Ok(None),
        [one] => one.clone(),
        _ => format!("({})", options.join(" | ")),
    };
    let is_listed = options.iter().all(|option| option.starts_with('"'));
    if !typed.is_empty() && !is_listed {
        whole = format!("({whole}) & ~(/{}/)", typed.join("|"));
    }
    Ok(Some(RawText {
        expression: whole,
        admits_empty,
    }))
}

fn too_complex(path: &str) -> SchemaError {
    super::reader::error(
        path,
        "pattern",
        "takes too many steps to check, expected a simpler one",
    )
}

fn is_typed(text: &str, typed: &[String], matcher: &Matcher) -> Result<bool, TooComplex> {
    for regex in typed {
        if matcher.matches(&Pattern::whole(regex), text)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether any text of the rule is read as itself.
fn has_raw_text(rule: &StringRule, typed: &[String]) -> Result<bool, TooComplex> {
    let own = [
        Pattern::whole(WRITABLE),
        Pattern::of_length(rule.min, rule.max),
    ];
    Pattern::leave(rule.patterns.iter().chain(&own), typed)
}

fn expression(rule: &StringRule) -> String {
    let mut parts: Vec<String> = rule
        .patterns
        .iter()
        .map(|pattern| format!("/{}/", pattern.as_regex()))
        .collect();
    if rule.min > 0 || rule.max.is_some() || parts.is_empty() {
        parts.push(match (rule.min, rule.max) {
            (0, None) => "/(?s:.*)/".to_string(),
            (min, max) => format!("/{}/", Pattern::of_length(min, max).as_regex()),
        });
    }
    match parts.len() {
        1 => parts.remove(0),
        _ => format!("({})", parts.join(" & ")),
    }
}
