//! Turns nodes into definitions: each a list of alternatives of one type, with everything that holds at the same
//! place merged. It must never call a schema empty that some value satisfies, nor merge by guessing.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::node::{NodeId, ObjectRule, Schema, StringRule, Types, least};
use super::number::NumberRule;
use super::pattern::{Pattern, TooComplex};
use super::reader::error;
use super::solution::{Alternative, Array, Definition, Key, Object, Property, Solution};
use super::{SchemaError, SchemaLimits, Strictness};

/// Alternatives that one definition may have.
const CASES_MAX: usize = 512;
/// Branches of a `oneOf` that are compared with each other.
const ONE_OF_MAX: usize = 64;
/// How deep branches of a `oneOf` are compared.
const COMPARED_DEPTH: usize = 6;
/// Definitions that may be made for comparing.
const COMPARED_MAX: usize = 20_000;
/// Properties, items and literals that all alternatives may have together.
const PARTS_MAX: usize = 300_000;

/// Whether the root object may have keys that its schema does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undeclared {
    /// As JSON Schema says: unless it is forbidden.
    Allowed,
    /// Only where `additionalProperties` is written.
    Explicit,
}

/// Solves a schema.
///
/// # Errors
/// If parts of it can't be merged, if no value satisfies it, or if it grows beyond a limit.
pub(super) fn solve(
    schema: &Schema,
    undeclared: Undeclared,
    strictness: Strictness,
    limits: &SchemaLimits,
) -> Result<Solution, SchemaError> {
    let solver = Solver {
        schema,
        compared: Cell::new(0),
        parts: Cell::new(0),
    };
    if strictness == Strictness::Schema {
        solver.compare_branches()?;
    }
    let root = solver.definition(&solver.key([schema.root]), undeclared)?;
    let mut pending: Vec<Key> = children(&root);
    // Values of any kind are needed where a parameter is written in several forms.
    pending.push(Key::new());
    let mut definitions = BTreeMap::new();
    while let Some(key) = pending.pop() {
        if definitions.contains_key(&key) {
            continue;
        }
        if definitions.len() >= limits.nodes_max {
            let problem = format!(
                "more than {} combinations, expected fewer",
                limits.nodes_max
            );
            return Err(error(&root.path, "schema", problem));
        }
        let definition = solver.definition(&key, Undeclared::Allowed)?;
        pending.extend(children(&definition));
        definitions.insert(key, definition);
    }
    let mut solution = Solution { root, definitions };
    solution.find_satisfiable();
    match solution.root.satisfiable {
        true => Ok(solution),
        false => Err(error(
            "",
            "schema",
            "no value satisfies it, expected one that some value does",
        )),
    }
}

fn children(definition: &Definition) -> Vec<Key> {
    definition
        .alternatives
        .iter()
        .flat_map(Alternative::children)
        .cloned()
        .collect()
}

struct Solver<'a> {
    schema: &'a Schema,
    /// Definitions made for comparing branches, all of a schema together.
    compared: Cell<usize>,
    /// Parts of all alternatives that were made.
    parts: Cell<usize>,
}

/// Nodes that hold together, one branch taken of each union.
struct Case {
    nodes: Vec<NodeId>,
    types: Types,
}

impl Solver<'_> {
    /// The key of nodes that all hold. A node that only refers to others stands for them, so that each way to
    /// the same schema has the same key.
    fn key(&self, nodes: impl IntoIterator<Item = NodeId>) -> Key {
        let mut pending: Vec<NodeId> = nodes.into_iter().collect();
        let mut key = BTreeSet::new();
        let mut seen = BTreeSet::new();
        while let Some(id) = pending.pop() {
            let node = &self.schema.nodes[id];
            if !seen.insert(id) {
                continue;
            }
            match node.is_free() && node.unions.is_empty() {
                true => pending.extend(&node.all),
                false => drop(key.insert(id)),
            }
        }
        key.into_iter().collect()
    }

    fn path(&self, key: &Key) -> &str {
        key.first().map_or("", |id| &self.schema.nodes[*id].path)
    }

    fn definition(&self, key: &Key, undeclared: Undeclared) -> Result<Definition, SchemaError> {
        let mut alternatives = Vec::new();
        for case in self.cases(key)? {
            for alternative in self.alternatives(&case, undeclared)? {
                self.parts.set(self.parts.get() + alternative.num_parts());
                if self.parts.get() > PARTS_MAX {
                    let problem =
                        format!("more than {PARTS_MAX} parts with all combinations of branches");
                    return Err(error(self.path(key), "schema", problem));
                }
                if !alternatives.contains(&alternative) {
                    alternatives.push(alternative);
                }
            }
        }
        let path = self.path(key).to_string();
        Ok(Definition {
            path,
            alternatives,
            satisfiable: false,
        })
    }

    /// Takes every combination of branches, and drops those that no type fits.
    fn cases(&self, key: &Key) -> Result<Vec<Case>, SchemaError> {
        struct Open {
            pending: Vec<NodeId>,
            taken: Vec<NodeId>,
            types: Types,
            unions: Vec<(NodeId, usize)>,
        }
        let pending = key.iter().rev().copied().collect();
        let first = Open {
            pending,
            taken: Vec::new(),
            types: Types::ALL,
            unions: Vec::new(),
        };
        let (mut open, mut done) = (vec![first], Vec::new());
        while let Some(mut state) = open.pop() {
            while let Some(id) = state.pending.pop() {
                if state.taken.contains(&id) {
                    continue;
                }
                let node = &self.schema.nodes[id];
                state.taken.push(id);
                state.types = state.types.and(node.types);
                state.pending.extend(node.all.iter().rev());
                state
                    .unions
                    .extend((0..node.unions.len()).map(|index| (id, index)));
            }
            if state.types == Types::NONE {
                continue;
            }
            if state.unions.is_empty() {
                done.push(Case {
                    nodes: state.taken,
                    types: state.types,
                });
                continue;
            }
            let (id, index) = state.unions.remove(0);
            let union = &self.schema.nodes[id].unions[index];
            if open.len() + done.len() + union.branches.len() > CASES_MAX {
                let problem =
                    format!("more than {CASES_MAX} combinations of branches, expected fewer");
                return Err(error(&self.schema.nodes[id].path, union.keyword, problem));
            }
            for branch in union.branches.iter().rev() {
                open.push(Open {
                    pending: vec![*branch],
                    taken: state.taken.clone(),
                    types: state.types,
                    unions: state.unions.clone(),
                });
            }
        }
        Ok(done)
    }

    fn alternatives(
        &self,
        case: &Case,
        undeclared: Undeclared,
    ) -> Result<Vec<Alternative>, SchemaError> {
        let nodes = || case.nodes.iter().map(|id| &self.schema.nodes[*id]);
        if let Some(literals) = nodes().find_map(|node| node.literals.as_ref()) {
            return self.literals(case, literals.values());
        }
        if nodes().all(|node| node.is_free()) {
            return Ok(vec![Alternative::Any]);
        }
        let mut out = Vec::new();
        if case.types.meets(Types::NULL) {
            out.push(Alternative::Null);
        }
        if case.types.meets(Types::BOOLEAN) {
            out.push(Alternative::Boolean);
        }
        if case.types.meets(Types::NUMBER) {
            let mut rule = NumberRule::default();
            nodes().for_each(|node| rule.and(&node.number));
            rule.integer = !case.types.meets(Types::FRACTION);
            if !rule.is_empty() {
                out.push(Alternative::Number(rule));
            }
        }
        if case.types.meets(Types::STRING) {
            out.extend(self.string(case)?.map(Alternative::String));
        }
        if case.types.meets(Types::ARRAY) {
            out.extend(self.array(case).map(Alternative::Array));
        }
        if case.types.meets(Types::OBJECT) {
            out.push(Alternative::Object(self.object(case, undeclared)?));
        }
        Ok(out)
    }

    /// The listed values that all nodes admit.
    fn literals(&self, case: &Case, listed: &[Value]) -> Result<Vec<Alternative>, SchemaError> {
        let mut out: Vec<Value> = Vec::new();
        let mut unwritable = None;
        for value in listed {
            let mut fits = case.types.meets(Types::of(value));
            for id in &case.nodes {
                let admitted = self.schema.own_admits(*id, value);
                fits = fits && admitted.map_err(|too| self.too_complex(*id, too))?;
            }
            if fits && !is_writable(value) {
                unwritable = Some(value);
            } else if fits {
                out.push(value.clone());
            }
        }
        match (out.is_empty(), unwritable) {
            (false, _) => Ok(vec![Alternative::Literals(out)]),
            (true, None) => Ok(Vec::new()),
            (true, Some(value)) => {
                let path = &self.schema.nodes[case.nodes[0]].path;
                let problem = format!("{value} holds a control character, expected plain text");
                Err(error(path, "enum", problem))
            }
        }
    }

    fn too_complex(&self, id: NodeId, _: TooComplex) -> SchemaError {
        let problem = "takes too many steps to check, expected a simpler one";
        error(&self.schema.nodes[id].path, "pattern", problem)
    }

    fn string(&self, case: &Case) -> Result<Option<StringRule>, SchemaError> {
        const PATTERNS_MAX: usize = 8;
        let mut rule = StringRule::default();
        for id in &case.nodes {
            rule.and(&self.schema.nodes[*id].string);
        }
        if rule.max.is_some_and(|max| rule.min > max) {
            return Ok(None);
        }
        let with_pattern = |id: &&NodeId| !self.schema.nodes[**id].string.patterns.is_empty();
        let Some(id) = case.nodes.iter().find(with_pattern) else {
            return Ok(Some(rule));
        };
        if rule.patterns.len() > PATTERNS_MAX {
            let problem = format!("more than {PATTERNS_MAX} at one place, expected fewer");
            return Err(error(&self.schema.nodes[*id].path, "pattern", problem));
        }
        let length = Pattern::of_length(rule.min, rule.max);
        let too_complex = |too| self.too_complex(*id, too);
        let in_recogniser = rule.patterns.iter().chain([&length]);
        if !Pattern::meet_in_recogniser(in_recogniser).map_err(too_complex)? {
            return Ok(None);
        }
        let own = [Pattern::whole(WRITABLE), length];
        match Pattern::meet(rule.patterns.iter().chain(&own)).map_err(too_complex)? {
            true => Ok(Some(rule)),
            false => Ok(None),
        }
    }

    fn array(&self, case: &Case) -> Option<Array> {
        let rules: Vec<_> = case
            .nodes
            .iter()
            .map(|id| &self.schema.nodes[*id].array)
            .collect();
        let min = rules.iter().map(|rule| rule.min).max().unwrap_or(0);
        let max = rules.iter().fold(None, |max, rule| least(max, rule.max));
        if max.is_some_and(|max| min > max) {
            return None;
        }
        let longest = rules
            .iter()
            .map(|rule| rule.prefix.len())
            .max()
            .unwrap_or(0);
        let longest = max.map_or(longest, |max| {
            longest.min(usize::try_from(max).unwrap_or(longest))
        });
        let at = |index: usize| {
            self.key(
                rules
                    .iter()
                    .filter_map(|rule| rule.prefix.get(index).copied().or(rule.items)),
            )
        };
        Some(Array {
            prefix: (0..longest).map(at).collect(),
            items: self.key(rules.iter().filter_map(|rule| rule.items)),
            min,
            max,
        })
    }

    fn object(&self, case: &Case, undeclared: Undeclared) -> Result<Object, SchemaError> {
        let rules: Vec<(NodeId, &ObjectRule)> = case
            .nodes
            .iter()
            .map(|id| (*id, &self.schema.nodes[*id].object))
            .filter(|(_, rule)| **rule != ObjectRule::default())
            .collect();
        let mut names: Vec<&String> = Vec::new();
        let declared = rules
            .iter()
            .flat_map(|(_, rule)| rule.properties.iter().map(|(name, _)| name));
        let required: Vec<&String> = rules.iter().flat_map(|(_, rule)| &rule.required).collect();
        let mut seen = BTreeSet::new();
        names.extend(
            declared
                .chain(required.iter().copied())
                .filter(|name| seen.insert(*name)),
        );
        let required: BTreeSet<&String> = required.into_iter().collect();
        let mut properties = Vec::new();
        for name in names {
            let mut nodes = Vec::new();
            for (id, rule) in &rules {
                nodes.extend(
                    rule.nodes_of(name, &self.schema.matcher)
                        .map_err(|too| self.too_complex(*id, too))?,
                );
            }
            let required = required.contains(name);
            properties.push(Property {
                name: name.clone(),
                key: self.key(nodes),
                required,
            });
        }
        let is_open = rules.iter().any(|(_, rule)| rule.additional.is_some());
        let others = self.key(rules.iter().filter_map(|(_, rule)| rule.additional));
        Ok(Object {
            properties,
            patterns: self.patterns(&rules)?,
            rest: (is_open || undeclared == Undeclared::Allowed).then_some(others),
            min: rules.iter().map(|(_, rule)| rule.min).max().unwrap_or(0),
            max: rules
                .iter()
                .fold(None, |max, (_, rule)| least(max, rule.max)),
        })
    }

    /// The keys that patterns name. No two patterns may match the same key.
    fn patterns(
        &self,
        rules: &[(NodeId, &ObjectRule)],
    ) -> Result<Vec<(Pattern, Key)>, SchemaError> {
        const PATTERNS_MAX: usize = 16;
        let mut found: Vec<(NodeId, &Pattern)> = Vec::new();
        for (id, rule) in rules {
            for (pattern, _) in &rule.patterns {
                if found.iter().any(|(_, other)| *other == pattern) {
                    continue;
                }
                let path = &self.schema.nodes[*id].path;
                if found.len() == PATTERNS_MAX {
                    let problem = format!("more than {PATTERNS_MAX}, expected fewer");
                    return Err(error(path, "patternProperties", problem));
                }
                for (_, other) in &found {
                    if Pattern::meet([*other, pattern]).unwrap_or(true) {
                        let problem = "two patterns may match one key, expected others";
                        return Err(error(path, "patternProperties", problem));
                    }
                }
                found.push((*id, pattern));
            }
        }
        let key = |pattern: &Pattern| {
            self.key(rules.iter().flat_map(|(_, rule)| {
                // Two spellings may come out as the same pattern: both hold.
                let same = rule.patterns.iter().filter(|(other, _)| other == pattern);
                let mut nodes: Vec<NodeId> = same.map(|(_, node)| *node).collect();
                if nodes.is_empty() {
                    nodes.extend(rule.additional);
                }
                nodes
            }))
        };
        Ok(found
            .iter()
            .map(|(_, pattern)| ((*pattern).clone(), key(pattern)))
            .collect())
    }

    /// Checks that no value fits two branches of a `oneOf`.
    fn compare_branches(&self) -> Result<(), SchemaError> {
        for node in &self.schema.nodes {
            for union in node.unions.iter().filter(|union| union.keyword == "oneOf") {
                let count = union.branches.len();
                if count > ONE_OF_MAX {
                    let problem = format!("{count} branches, expected at most {ONE_OF_MAX}");
                    return Err(error(&node.path, "oneOf", problem));
                }
                for (index, a) in union.branches.iter().enumerate() {
                    for (offset, b) in union.branches[index + 1..].iter().enumerate() {
                        let both = self.key(node.all.iter().copied().chain([*a, *b]));
                        if !self.is_surely_empty(&both, COMPARED_DEPTH) {
                            let problem = format!(
                                "branches {index} and {} may both fit, expected branches that \
                                 differ in type or in a required property's `const`, or `anyOf`",
                                index + 1 + offset
                            );
                            return Err(error(&node.path, "oneOf", problem));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether it is plain that no value fits.
    fn is_surely_empty(&self, key: &Key, depth: usize) -> bool {
        self.compared.set(self.compared.get() + 1);
        if self.compared.get() > COMPARED_MAX {
            return false;
        }
        let Ok(definition) = self.definition(key, Undeclared::Allowed) else {
            return false;
        };
        let is_empty = |key: &Key| depth > 0 && self.is_surely_empty(key, depth - 1);
        definition
            .alternatives
            .iter()
            .all(|alternative| match alternative {
                Alternative::Array(array) => {
                    let needed = usize::try_from(array.min).unwrap_or(usize::MAX);
                    let prefix = array.prefix.iter().take(needed).any(is_empty);
                    prefix || (needed > array.prefix.len() && is_empty(&array.items))
                }
                Alternative::Object(object) => {
                    object
                        .properties
                        .iter()
                        .filter(|property| property.required)
                        .any(|p| is_empty(&p.key))
                        || object
                            .max
                            .is_some_and(|max| object.required().max(object.min) > max)
                }
                _ => false,
            })
    }
}

/// Texts that a JSON string can spell with its short escapes.
pub(super) const WRITABLE: &str = "[^\\x{0}-\\x{7}\\x{b}\\x{e}-\\x{1f}\\x{7f}]*";

/// Whether the strings of a value can be spelled with the short escapes alone.
fn is_writable(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.chars().any(|c| {
            (c < ' ' && !matches!(c, '\u{8}' | '\u{c}' | '\n' | '\r' | '\t')) || c == '\u{7f}'
        }),
        Value::Array(items) => items.iter().all(is_writable),
        Value::Object(members) => members.values().all(is_writable),
        _ => true,
    }
}
