//! The JSON types and members that one parameter admits, and how its raw text is read by them.
//! It must never guess: text that no admitted type fits is refused, not passed on.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::json::{self, Decimal, Value};
use crate::python;

/// More alternatives than this are merged into their types.
const ALTERNATIVES_MAX: usize = 64;
/// Longer lists of members are only looked at for their types.
pub(crate) const MEMBERS_MAX: usize = 512;

/// A set of JSON types. Numbers are two: whole ones and the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeSet(u8);

impl TypeSet {
    const NULL: TypeSet = TypeSet(1);
    const BOOLEAN: TypeSet = TypeSet(2);
    const INTEGER: TypeSet = TypeSet(4);
    const FRACTION: TypeSet = TypeSet(8);
    const STRING: TypeSet = TypeSet(16);
    const ARRAY: TypeSet = TypeSet(32);
    const OBJECT: TypeSet = TypeSet(64);

    /// The types that a schema's type word names; `None` for a word that JSON Schema lacks.
    pub(crate) fn named(word: &str) -> Option<TypeSet> {
        Some(match word {
            "null" => TypeSet::NULL,
            "boolean" => TypeSet::BOOLEAN,
            "integer" => TypeSet::INTEGER,
            "number" => TypeSet::INTEGER.or(TypeSet::FRACTION),
            "string" => TypeSet::STRING,
            "array" => TypeSet::ARRAY,
            "object" => TypeSet::OBJECT,
            _ => return None,
        })
    }

    fn of(value: &Value) -> TypeSet {
        match value {
            Value::Null => TypeSet::NULL,
            Value::Bool(_) => TypeSet::BOOLEAN,
            Value::Number(text) if Decimal::of(text).is_integer() => TypeSet::INTEGER,
            Value::Number(_) => TypeSet::FRACTION,
            Value::String(_) => TypeSet::STRING,
            Value::Array(_) => TypeSet::ARRAY,
            Value::Object(_) => TypeSet::OBJECT,
        }
    }

    pub(crate) fn or(self, other: TypeSet) -> TypeSet {
        TypeSet(self.0 | other.0)
    }

    fn and(self, other: TypeSet) -> TypeSet {
        TypeSet(self.0 & other.0)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn meets(self, other: TypeSet) -> bool {
        !self.and(other).is_empty()
    }
}

/// How a format writes values where the schema leaves room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// A value of unknown type is JSON if it parses, else text.
    Json,
    /// A value of unknown type is text; lists may be in Python's spelling.
    Python,
}

/// One way to satisfy a schema: a value of these types and, if there are members, one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    types: TypeSet,
    members: Option<Vec<Value>>,
}

impl Alternative {
    fn of_members(members: Vec<Value>) -> Alternative {
        let types = members
            .iter()
            .fold(TypeSet(0), |types, value| types.or(TypeSet::of(value)));
        Alternative {
            types,
            members: Some(members),
        }
    }

    fn and(&self, other: &Alternative) -> Alternative {
        let types = self.types.and(other.types);
        let members: Option<Vec<Value>> = match (&self.members, &other.members) {
            (None, None) => {
                return Alternative {
                    types,
                    members: None,
                };
            }
            (Some(a), Some(b)) => Some(
                a.iter()
                    .filter(|a| b.iter().any(|b| a.same(b)))
                    .cloned()
                    .collect(),
            ),
            (Some(members), None) | (None, Some(members)) => Some(members.clone()),
        };
        let mut members = members.unwrap_or_default();
        members.retain(|member| types.meets(TypeSet::of(member)));
        Alternative::of_members(members)
    }

    fn has(&self, value: &Value) -> bool {
        self.types.meets(TypeSet::of(value))
            && self
                .members
                .as_ref()
                .is_none_or(|members| members.iter().any(|m| m.same(value)))
    }
}

/// What a parameter's schema admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admits {
    /// The schema says nothing about the type, or there is none.
    Unknown,
    /// Any of these; none at all where the schema contradicts itself.
    Known(Vec<Alternative>),
}

impl Admits {
    pub(crate) fn types(types: TypeSet) -> Admits {
        Admits::Known(Vec::from([Alternative {
            types,
            members: None,
        }]))
    }

    /// Exactly these values; of a very long list only their types.
    pub(crate) fn members(members: Vec<Value>) -> Admits {
        let mut listed = Alternative::of_members(members);
        listed.members = listed
            .members
            .filter(|members| members.len() <= MEMBERS_MAX);
        Admits::Known(Vec::from([listed]))
    }

    /// What either admits.
    pub(crate) fn or(self, other: Admits) -> Admits {
        match (self, other) {
            (Admits::Known(mut a), Admits::Known(b)) => {
                for known in b {
                    if !a.contains(&known) {
                        a.push(known);
                    }
                }
                Admits::Known(merged(a))
            }
            _ => Admits::Unknown,
        }
    }

    /// What both admit.
    pub(crate) fn and(self, other: Admits) -> Admits {
        match (self, other) {
            (Admits::Unknown, other) | (other, Admits::Unknown) => other,
            (Admits::Known(a), Admits::Known(b)) => {
                let mut both = Vec::new();
                for a in &a {
                    for b in &b {
                        let known = a.and(b);
                        if !known.types.is_empty() && !both.contains(&known) {
                            both.push(known);
                        }
                    }
                }
                Admits::Known(merged(both))
            }
        }
    }

    /// Whether a value can only be a string, and so is its text byte for byte.
    pub(crate) fn is_plain_string(&self) -> bool {
        matches!(self, Admits::Known(_)) && self.type_set() == TypeSet::STRING
    }

    /// Whether a value is its text byte for byte in this dialect.
    pub(crate) fn is_text(&self, dialect: Dialect) -> bool {
        self.is_plain_string() || (*self == Admits::Unknown && dialect == Dialect::Python)
    }

    /// Whether every alternative lists its members: such a parameter tells branches apart.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(self, Admits::Known(known) if known.iter().all(|k| k.members.is_some()))
    }

    /// Whether raw text is one of the listed members, as a string or as JSON.
    pub(crate) fn lists(&self, raw: &str) -> bool {
        let Admits::Known(known) = self else {
            return false;
        };
        let parsed = json::parse(json::trim_blanks(raw), json::DEPTH_MAX).ok();
        known
            .iter()
            .flat_map(|k| k.members.iter().flatten())
            .any(|member| match member {
                Value::String(text) => text == raw,
                other => parsed.as_ref().is_some_and(|value| value.same(other)),
            })
    }

    fn type_set(&self) -> TypeSet {
        match self {
            Admits::Unknown => TypeSet(0x7f),
            Admits::Known(known) => known.iter().fold(TypeSet(0), |set, k| set.or(k.types)),
        }
    }

    fn has(&self, value: &Value) -> bool {
        match self {
            Admits::Unknown => true,
            Admits::Known(known) => known.iter().any(|k| k.has(value)),
        }
    }

    /// Reads raw text as the value it stands for, by the table of types that the formats with
    /// untyped values share. `None` if no type fits.
    pub(crate) fn read(&self, raw: &str, dialect: Dialect) -> Option<Value> {
        if self.is_text(dialect) {
            return Some(Value::String(raw.into()));
        }
        let trimmed = json::trim_blanks(raw);
        let parsed = json::parse(trimmed, json::DEPTH_MAX).ok();
        if *self == Admits::Unknown {
            return Some(parsed.unwrap_or_else(|| Value::String(raw.into())));
        }
        if self.type_set().meets(TypeSet::STRING) {
            let typed = parsed.filter(|v| !matches!(v, Value::String(_)) && self.has(v));
            return Some(typed.unwrap_or_else(|| Value::String(raw.into())));
        }
        parsed
            .or_else(|| python::scalar(trimmed))
            .or_else(|| match dialect {
                Dialect::Json => None,
                Dialect::Python => python::list(trimmed),
            })
            .filter(|value| self.has(value))
    }

    /// What a value must be, for an error message.
    pub(crate) fn describe(&self) -> String {
        const NAMES: [(TypeSet, &str); 6] = [
            (TypeSet::NULL, "null"),
            (TypeSet::BOOLEAN, "a boolean"),
            (TypeSet::STRING, "a string"),
            (TypeSet::ARRAY, "an array"),
            (TypeSet::OBJECT, "an object"),
            (TypeSet::FRACTION, "a number"),
        ];
        const SHOWN_MAX: usize = 12;
        let mut text = String::new();
        let types = self.type_set();
        let mut say = |part: &str| {
            text.push_str(if text.is_empty() { "" } else { " or " });
            text.push_str(part);
        };
        for (_, name) in NAMES.iter().filter(|(set, _)| types.meets(*set)) {
            say(name);
        }
        if types.meets(TypeSet::INTEGER) && !types.meets(TypeSet::FRACTION) {
            say("an integer");
        }
        if text.is_empty() {
            return "nothing (the schema contradicts itself)".into();
        }
        if let Admits::Known(known) = self
            && self.is_listed()
        {
            let members = known.iter().flat_map(|k| k.members.iter().flatten());
            for (i, member) in members.take(SHOWN_MAX).enumerate() {
                let _ = write!(text, "{}{member}", if i == 0 { ", one of " } else { ", " });
            }
        }
        text
    }
}

/// Keeps the number of alternatives in bounds, at the price of forgetting their members.
fn merged(known: Vec<Alternative>) -> Vec<Alternative> {
    if known.len() <= ALTERNATIVES_MAX {
        return known;
    }
    let types = known.iter().fold(TypeSet(0), |set, k| set.or(k.types));
    Vec::from([Alternative {
        types,
        members: None,
    }])
}
