//! What a schema means: definitions, each a list of alternatives of one type. It must never call one empty that some
//! value satisfies, nor satisfiable what no finite value does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::node::{NodeId, StringRule};
use super::number::NumberRule;
use super::pattern::Pattern;

/// All definitions that a root needs.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub(super) root: Definition,
    pub(super) definitions: BTreeMap<Key, Definition>,
}

impl Solution {
    pub(super) fn is_satisfiable(&self, key: &Key) -> bool {
        self.definitions
            .get(key)
            .is_some_and(|definition| definition.satisfiable)
    }

    /// Marks definitions from the leaves up, so that what only refers to itself stays unmarked.
    pub(super) fn find_satisfiable(&mut self) {
        let mut parents: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
        for (key, definition) in &self.definitions {
            for child in definition
                .alternatives
                .iter()
                .flat_map(Alternative::children)
            {
                parents.entry(child.clone()).or_default().push(key.clone());
            }
        }
        let mut round: BTreeSet<Key> = self.definitions.keys().cloned().collect();
        while !round.is_empty() {
            let mut next = BTreeSet::new();
            for key in round {
                let definition = &self.definitions[&key];
                if definition.satisfiable || !self.is_possible(definition) {
                    continue;
                }
                if let Some(definition) = self.definitions.get_mut(&key) {
                    definition.satisfiable = true;
                }
                next.extend(parents.get(&key).into_iter().flatten().cloned());
            }
            round = next;
        }
        self.root.satisfiable = self.is_possible(&self.root);
    }

    fn is_possible(&self, definition: &Definition) -> bool {
        definition
            .alternatives
            .iter()
            .any(|alternative| self.admits_a_value(alternative))
    }

    /// Whether an alternative is satisfiable, as far as is known by now.
    pub(super) fn admits_a_value(&self, alternative: &Alternative) -> bool {
        match alternative {
            Alternative::Array(array) => {
                let needed = array.prefix.iter().chain(std::iter::repeat(&array.items));
                let length = usize::try_from(array.min).unwrap_or(usize::MAX);
                needed
                    .take(length.min(array.prefix.len() + 1))
                    .all(|key| self.is_satisfiable(key))
            }
            Alternative::Object(object) => {
                let has_others = object.rest.iter().any(|key| self.is_satisfiable(key))
                    || object
                        .patterns
                        .iter()
                        .any(|(_, key)| self.is_satisfiable(key));
                let usable = object
                    .properties
                    .iter()
                    .filter(|p| self.is_satisfiable(&p.key))
                    .count();
                object
                    .properties
                    .iter()
                    .all(|p| !p.required || self.is_satisfiable(&p.key))
                    && object
                        .max
                        .is_none_or(|max| object.required().max(object.min) <= max)
                    && (has_others || object.min <= usable as u64)
            }
            _ => true,
        }
    }
}

/// A set of nodes that all hold; sorted. The empty one admits all values.
pub(super) type Key = Vec<NodeId>;

/// One way to satisfy a definition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Alternative {
    Any,
    Literals(Vec<Value>),
    Null,
    Boolean,
    Number(NumberRule),
    String(StringRule),
    Array(Array),
    Object(Object),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub(super) prefix: Vec<Key>,
    pub(super) items: Key,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    /// In the order in which they are written.
    pub(super) properties: Vec<Property>,
    pub(super) patterns: Vec<(Pattern, Key)>,
    /// The other keys; None where there may be none.
    pub(super) rest: Option<Key>,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) key: Key,
    pub(super) required: bool,
}

impl Object {
    pub(super) fn required(&self) -> u64 {
        self.properties
            .iter()
            .filter(|property| property.required)
            .count() as u64
    }
}

impl Alternative {
    /// A measure of its size.
    pub(super) fn num_parts(&self) -> usize {
        match self {
            Alternative::Literals(values) => values.len(),
            other => 1 + other.children().len(),
        }
    }

    /// The keys of all that lies inside.
    pub(super) fn children(&self) -> Vec<&Key> {
        match self {
            Alternative::Array(array) => array.prefix.iter().chain([&array.items]).collect(),
            Alternative::Object(object) => {
                let properties = object.properties.iter().map(|property| &property.key);
                let patterns = object.patterns.iter().map(|(_, key)| key);
                properties.chain(patterns).chain(&object.rest).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What a set of nodes means.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    /// Where it was read; for messages.
    pub(super) path: String,
    pub(super) alternatives: Vec<Alternative>,
    /// Whether some finite value satisfies it.
    pub(super) satisfiable: bool,
}
