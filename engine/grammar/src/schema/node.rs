//! A schema as the gate has read it: nodes that hold keywords of their own and refer to other nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::number::{Decimal, NumberRule};
use super::pattern::{Matcher, Pattern, TooComplex};

/// A node's place in its [`Schema`].
pub(super) type NodeId = usize;

/// JSON types; numbers are two, whole ones and the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Types = Types(0);
    pub(super) const NULL: Types = Types(1);
    pub(super) const BOOLEAN: Types = Types(2);
    pub(super) const INTEGER: Types = Types(4);
    pub(super) const FRACTION: Types = Types(8);
    pub(super) const NUMBER: Types = Types(12);
    pub(super) const STRING: Types = Types(16);
    pub(super) const ARRAY: Types = Types(32);
    pub(super) const OBJECT: Types = Types(64);
    pub(super) const ALL: Types = Types(127);

    /// The types of a type word; `None` for a word that JSON Schema lacks.
    pub(super) fn named(word: &str) -> Option<Types> {
        Some(match word {
            "null" => Types::NULL,
            "boolean" => Types::BOOLEAN,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "string" => Types::STRING,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            _ => return None,
        })
    }

    pub(super) fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) => match Decimal::of(number).and_then(Decimal::whole) {
                Some(_) => Types::INTEGER,
                None => Types::FRACTION,
            },
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(super) fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    pub(super) fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    pub(super) fn meets(self, other: Types) -> bool {
        self.and(other) != Types::NONE
    }
}

/// What a string must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StringRule {
    /// In characters.
    pub(super) min: u64,
    pub(super) max: Option<u64>,
    pub(super) patterns: BTreeSet<Pattern>,
}

impl StringRule {
    pub(super) fn is_free(&self) -> bool {
        *self == StringRule::default()
    }

    pub(super) fn and(&mut self, other: &StringRule) {
        self.min = self.min.max(other.min);
        self.max = least(self.max, other.max);
        self.patterns.extend(other.patterns.iter().cloned());
    }

    pub(super) fn admits(&self, text: &str, matcher: &Matcher) -> Result<bool, TooComplex> {
        let length = text.chars().count() as u64;
        if length < self.min || self.max.is_some_and(|max| length > max) {
            return Ok(false);
        }
        for pattern in &self.patterns {
            if !matcher.matches(pattern, text)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The lesser of two upper limits.
pub(super) fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What an array must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArrayRule {
    pub(super) prefix: Vec<NodeId>,
    /// The items behind the prefix.
    pub(super) items: Option<NodeId>,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
}

/// What an object must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectRule {
    pub(super) properties: Vec<(String, NodeId)>,
    /// The same by name.
    pub(super) by_name: BTreeMap<String, NodeId>,
    pub(super) patterns: Vec<(Pattern, NodeId)>,
    /// The keys that are neither declared nor match a pattern.
    pub(super) additional: Option<NodeId>,
    pub(super) required: Vec<String>,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
}

impl ObjectRule {
    /// The nodes that the value under a key must satisfy.
    pub(super) fn nodes_of(&self, key: &str, matcher: &Matcher) -> Result<Vec<NodeId>, TooComplex> {
        let mut nodes: Vec<NodeId> = self.by_name.get(key).copied().into_iter().collect();
        for (pattern, node) in &self.patterns {
            if matcher.matches(pattern, key)? {
                nodes.push(*node);
            }
        }
        if nodes.is_empty() {
            nodes.extend(self.additional);
        }
        Ok(nodes)
    }
}

/// A choice between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Union {
    /// `anyOf` or `oneOf`.
    pub(super) keyword: &'static str,
    pub(super) branches: Vec<NodeId>,
}

/// One schema object or boolean. All of it must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// JSON pointer of where it was read.
    pub(super) path: String,
    pub(super) types: Types,
    /// One of these values.
    pub(super) literals: Option<Literals>,
    pub(super) number: NumberRule,
    pub(super) string: StringRule,
    pub(super) array: ArrayRule,
    pub(super) object: ObjectRule,
    /// These hold too: `allOf`, `$ref`.
    pub(super) all: Vec<NodeId>,
    pub(super) unions: Vec<Union>,
}

impl Node {
    /// A node that admits all values.
    pub(super) fn free(path: &str) -> Node {
        Node {
            path: path.to_string(),
            types: Types::ALL,
            literals: None,
            number: NumberRule::default(),
            string: StringRule::default(),
            array: ArrayRule::default(),
            object: ObjectRule::default(),
            all: Vec::new(),
            unions: Vec::new(),
        }
    }

    pub(super) fn of_types(path: &str, types: Types) -> Node {
        Node {
            types,
            ..Node::free(path)
        }
    }

    /// Whether its own keywords admit all values.
    pub(super) fn is_free(&self) -> bool {
        self.types == Types::ALL
            && self.literals.is_none()
            && self.number.is_free()
            && self.string.is_free()
            && self.array == ArrayRule::default()
            && self.object == ObjectRule::default()
    }
}

/// All nodes that can be reached from a root.
pub(super) struct Schema {
    pub(super) nodes: Vec<Node>,
    pub(super) root: NodeId,
    pub(super) matcher: Matcher,
}

impl Schema {
    /// Whether a value satisfies a node.
    pub(super) fn admits(&self, id: NodeId, value: &Value) -> Result<bool, TooComplex> {
        let node = &self.nodes[id];
        if !self.own_admits(id, value)? {
            return Ok(false);
        }
        for part in &node.all {
            if !self.admits(*part, value)? {
                return Ok(false);
            }
        }
        for union in &node.unions {
            let mut fitting = 0;
            for branch in &union.branches {
                fitting += usize::from(self.admits(*branch, value)?);
            }
            if fitting == 0 || (union.keyword == "oneOf" && fitting > 1) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a value satisfies the keywords of a node, apart from `allOf`, `$ref`, `anyOf` and `oneOf`.
    pub(super) fn own_admits(&self, id: NodeId, value: &Value) -> Result<bool, TooComplex> {
        let node = &self.nodes[id];
        if !node.types.meets(Types::of(value)) {
            return Ok(false);
        }
        if let Some(literals) = &node.literals
            && !literals.contains(value)
        {
            return Ok(false);
        }
        match value {
            Value::Null | Value::Bool(_) => Ok(true),
            Value::Number(number) => {
                Ok(Decimal::of(number).is_some_and(|value| node.number.admits(value)))
            }
            Value::String(text) => node.string.admits(text, &self.matcher),
            Value::Array(items) => {
                let (rule, length) = (&node.array, items.len() as u64);
                if length < rule.min || rule.max.is_some_and(|max| length > max) {
                    return Ok(false);
                }
                for (index, item) in items.iter().enumerate() {
                    if let Some(node) = rule.prefix.get(index).copied().or(rule.items)
                        && !self.admits(node, item)?
                    {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Value::Object(members) => {
                let (rule, size) = (&node.object, members.len() as u64);
                if size < rule.min
                    || rule.max.is_some_and(|max| size > max)
                    || rule.required.iter().any(|name| !members.contains_key(name))
                {
                    return Ok(false);
                }
                for (key, member) in members {
                    for node in rule.nodes_of(key, &self.matcher)? {
                        if !self.admits(node, member)? {
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Values to choose from, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Literals {
    values: Vec<Value>,
    spellings: BTreeSet<String>,
}

impl Literals {
    pub(super) fn values(&self) -> &[Value] {
        &self.values
    }

    pub(super) fn contains(&self, value: &Value) -> bool {
        self.spellings.contains(&spelling(value))
    }

    pub(super) fn push(&mut self, value: &Value) {
        if self.spellings.insert(spelling(value)) {
            self.values.push(value.clone());
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Value) -> bool) {
        self.values.retain(|value| keep(value));
        self.spellings = self.values.iter().map(spelling).collect();
    }
}

/// One spelling for values that are the same: numbers by value, objects whatever the order of their keys.
fn spelling(value: &Value) -> String {
    match value {
        Value::Number(number) => match Decimal::of(number) {
            Some(decimal) => format!("{decimal:?}"),
            None => number.to_string(),
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spelling).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), spelling(value)))
                .collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}
