//! The declared tools: from each parameter schema, only what is needed to pick a value's type.
//! It is no validator, and no schema may make it work without bound.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::json::{self, Value};
use crate::types::{Admits, MEMBERS_MAX, TypeSet};

/// How many tools a set may hold.
pub const TOOLS_MAX: usize = 4096;
/// How large the text of one parameter schema may be.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;
/// How deep a schema may nest, references followed.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// How many schema nodes reading one tool may visit, references followed.
pub const SCHEMA_NODES_MAX: usize = 50_000;

/// A tool declaration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Name of the tool.
    pub tool: String,
    /// What is wrong with it, what was expected.
    pub problem: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool `{}`: {}", self.tool, self.problem)
    }
}

impl core::error::Error for SchemaError {}

/// The tools that a request offers, by name.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    tools: BTreeMap<String, Parameters>,
    /// What each was made of.
    sources: Vec<(String, Option<String>)>,
}

impl ToolSet {
    /// Takes each tool's name and the JSON text of its parameter schema, if it has one. Fails on
    /// a schema that is no JSON object, on limits of size, depth and effort, and on a name that
    /// is declared twice.
    pub fn new<'a>(
        tools: impl IntoIterator<Item = (String, Option<&'a str>)>,
    ) -> Result<ToolSet, SchemaError> {
        let mut set = ToolSet::default();
        for (name, schema) in tools {
            set.sources
                .push((name.clone(), schema.map(ToString::to_string)));
            let parameters = schema.map_or_else(|| Ok(Parameters::default()), Parameters::parse);
            let parameters = match parameters {
                Ok(parameters) => parameters,
                Err(problem) => {
                    return Err(SchemaError {
                        tool: name,
                        problem,
                    });
                }
            };
            if set.tools.len() == TOOLS_MAX {
                let problem = alloc::format!("one too many, expected at most {TOOLS_MAX} tools");
                return Err(SchemaError {
                    tool: name,
                    problem,
                });
            }
            if set.tools.insert(name.clone(), parameters).is_some() {
                let problem = "declared twice, expected each name once".into();
                return Err(SchemaError {
                    tool: name,
                    problem,
                });
            }
        }
        Ok(set)
    }

    /// What this set was made of, in that order: names, and the texts of schemas.
    pub fn sources(&self) -> &[(String, Option<String>)] {
        &self.sources
    }

    /// Whether no tool is offered, so that call tags have no meaning.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether a tool of this name is offered.
    pub fn contains(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// The offered names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    pub(crate) fn parameters(&self, name: &str) -> Option<&Parameters> {
        self.tools.get(name)
    }
}

/// The parameters of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    fixed: BTreeMap<String, Admits>,
    /// Unions at the root of the schema: each is a list of branches.
    unions: Vec<Vec<BTreeMap<String, Admits>>>,
    /// Parameters whose reading depends on which branch the other arguments choose.
    branching: BTreeSet<String>,
}

impl Parameters {
    fn parse(schema: &str) -> Result<Parameters, String> {
        if schema.len() > SCHEMA_BYTES_MAX {
            return Err(alloc::format!(
                "parameters of {} bytes, expected at most {SCHEMA_BYTES_MAX}",
                schema.len()
            ));
        }
        let root = json::parse(schema, SCHEMA_DEPTH_MAX)
            .map_err(|error| alloc::format!("parameters are no JSON schema: {error}"))?;
        if !matches!(root, Value::Object(_)) {
            return Err("parameters are no JSON object, expected a schema".into());
        }
        let mut reader = SchemaReader {
            root: &root,
            open: Vec::new(),
            nodes: 0,
            depth: 0,
        };
        let mut parameters = reader.object(&root)?;
        parameters.branching = parameters.find_branching();
        Ok(parameters)
    }

    /// Whether the schema declares a parameter of this name, in any branch.
    pub(crate) fn declares(&self, name: &str) -> bool {
        self.fixed.contains_key(name) || self.branches().any(|branch| branch.contains_key(name))
    }

    /// Whether the reading of this parameter has to wait for the other arguments.
    pub(crate) fn is_branching(&self, name: &str) -> bool {
        self.branching.contains(name)
    }

    /// Whether any parameter has to wait for other arguments.
    pub(crate) fn has_branching(&self) -> bool {
        !self.branching.is_empty()
    }

    /// What a parameter admits, given the raw text of the call's arguments.
    pub(crate) fn admits(&self, name: &str, arguments: &BTreeMap<&str, &str>) -> Admits {
        let fixed = self.fixed.get(name).cloned().unwrap_or(Admits::Unknown);
        self.unions.iter().fold(fixed, |admits, branches| {
            match union_of(name, chosen(branches, arguments)).or(union_of(name, branches)) {
                Some(union) => admits.and(union),
                None => admits,
            }
        })
    }

    fn branches(&self) -> impl Iterator<Item = &BTreeMap<String, Admits>> {
        self.unions.iter().flatten()
    }

    fn find_branching(&self) -> BTreeSet<String> {
        let names: BTreeSet<&String> = self.branches().flat_map(BTreeMap::keys).collect();
        let is_branching = |name: &&&String| {
            let fixed = self.fixed.get(**name).cloned().unwrap_or(Admits::Unknown);
            let mut readings = Vec::new();
            for branch in self.branches() {
                if let Some(admits) = branch.get(**name) {
                    readings.push(fixed.clone().and(admits.clone()));
                }
            }
            let all_text = readings.iter().all(Admits::is_plain_string);
            !all_text && readings.iter().any(|reading| *reading != readings[0])
        };
        names
            .iter()
            .filter(is_branching)
            .map(|name| (*name).clone())
            .collect()
    }

    /// The same as one flat list: what a branch of a union says about each parameter.
    fn flattened(self) -> BTreeMap<String, Admits> {
        let none = BTreeMap::new();
        let mut names: BTreeSet<String> = self.branches().flat_map(|b| b.keys().cloned()).collect();
        names.extend(self.fixed.keys().cloned());
        names
            .into_iter()
            .map(|name| (name.clone(), self.admits(&name, &none)))
            .collect()
    }

    /// Joins what a sibling schema says: both hold.
    fn and(&mut self, other: Parameters) {
        for (name, admits) in other.fixed {
            let known = self.fixed.remove(&name).unwrap_or(Admits::Unknown);
            self.fixed.insert(name, known.and(admits));
        }
        self.unions.extend(other.unions);
    }
}

/// The branches that the arguments choose: those with a listed value that is given, else those
/// that no given value contradicts, else all.
fn chosen<'a>(
    branches: &'a [BTreeMap<String, Admits>],
    arguments: &BTreeMap<&str, &str>,
) -> Vec<&'a BTreeMap<String, Admits>> {
    let (mut matching, mut possible) = (Vec::new(), Vec::new());
    for branch in branches {
        let mut listed = branch
            .iter()
            .filter(|(_, admits)| admits.is_listed())
            .filter_map(|(name, admits)| Some((admits, *arguments.get(name.as_str())?)))
            .peekable();
        let names_one = listed.peek().is_some();
        if listed.all(|(admits, raw)| admits.lists(raw)) {
            possible.push(branch);
            if names_one {
                matching.push(branch);
            }
        }
    }
    if matching.is_empty() {
        possible
    } else {
        matching
    }
}

/// What any of the branches that declare the parameter admits.
fn union_of<'a>(
    name: &str,
    branches: impl IntoIterator<Item = &'a BTreeMap<String, Admits>>,
) -> Option<Admits> {
    branches
        .into_iter()
        .filter_map(|branch| branch.get(name))
        .cloned()
        .reduce(Admits::or)
}

/// Walks one schema, following local references.
struct SchemaReader<'a> {
    root: &'a Value,
    /// References that are being followed: meeting one again is a cycle.
    open: Vec<&'a str>,
    nodes: usize,
    depth: usize,
}

impl<'a> SchemaReader<'a> {
    /// Runs one visit, counted against depth and effort.
    fn visit<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.nodes += 1;
        if self.nodes > SCHEMA_NODES_MAX {
            return Err(alloc::format!(
                "parameters refer to each other too often, expected at most {SCHEMA_NODES_MAX} \
                 schema nodes"
            ));
        }
        if self.depth == SCHEMA_DEPTH_MAX {
            return Err(alloc::format!(
                "parameters nest too deep, expected at most {SCHEMA_DEPTH_MAX} levels"
            ));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Reads a schema for what it says about an object's properties.
    fn object(&mut self, node: &'a Value) -> Result<Parameters, String> {
        self.visit(|reader| {
            let mut parameters = Parameters::default();
            if let Some(Value::Object(properties)) = node.get("properties") {
                // A property may be of the type that holds it: that is no cycle of references.
                let outer = core::mem::take(&mut reader.open);
                for (name, property) in properties {
                    parameters
                        .fixed
                        .insert(name.clone(), reader.admits(property)?);
                }
                reader.open = outer;
            }
            if let Some(target) = node.get("$ref").and_then(Value::as_str)
                && let Some(referred) = reader.follow(target, Self::object)?
            {
                parameters.and(referred);
            }
            for part in list(node, "allOf") {
                let part = reader.object(part)?;
                parameters.and(part);
            }
            for union in ["anyOf", "oneOf"] {
                let mut branches = Vec::new();
                for branch in list(node, union) {
                    branches.push(reader.object(branch)?.flattened());
                }
                if !branches.is_empty() {
                    parameters.unions.push(branches);
                }
            }
            Ok(parameters)
        })
    }

    /// Reads a schema for the types and members it admits.
    fn admits(&mut self, node: &'a Value) -> Result<Admits, String> {
        self.visit(|reader| {
            let mut admits = named_types(node.get("type"));
            if let Some(value) = node.get("const") {
                admits = admits.and(Admits::members(Vec::from([value.clone()])));
            }
            if let Some(Value::Array(values)) = node.get("enum") {
                reader.nodes += values.len().min(MEMBERS_MAX);
                admits = admits.and(Admits::members(values.clone()));
            }
            if let Some(target) = node.get("$ref").and_then(Value::as_str) {
                let referred = reader.follow(target, Self::admits)?;
                admits = admits.and(referred.unwrap_or(Admits::Unknown));
            }
            for part in list(node, "allOf") {
                admits = admits.and(reader.admits(part)?);
            }
            for union in ["anyOf", "oneOf"] {
                let mut either: Option<Admits> = None;
                for branch in list(node, union) {
                    let branch = reader.admits(branch)?;
                    either = Some(either.map_or(branch.clone(), |either| either.or(branch)));
                }
                admits = admits.and(either.unwrap_or(Admits::Unknown));
            }
            if node.get("nullable") == Some(&Value::Bool(true)) {
                admits = admits.or(Admits::members(Vec::from([Value::Null])));
            }
            Ok(admits)
        })
    }

    /// Reads what a reference points to; `None` for a cycle and for what is not in this schema.
    fn follow<T>(
        &mut self,
        target: &'a str,
        read: fn(&mut Self, &'a Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(node) = pointed(self.root, target).filter(|_| !self.open.contains(&target)) else {
            return Ok(None);
        };
        self.open.push(target);
        let value = read(self, node)?;
        self.open.pop();
        Ok(Some(value))
    }
}

/// The types of a `type` keyword: a word or a list of words. A word that JSON Schema lacks says
/// nothing.
fn named_types(node: Option<&Value>) -> Admits {
    let words = match node {
        Some(Value::Array(words)) => words.as_slice(),
        Some(word) => core::slice::from_ref(word),
        None => return Admits::Unknown,
    };
    let types: Option<Vec<TypeSet>> = words
        .iter()
        .map(|word| word.as_str().and_then(TypeSet::named))
        .collect();
    match types.and_then(|types| types.into_iter().reduce(TypeSet::or)) {
        Some(types) => Admits::types(types),
        None => Admits::Unknown,
    }
}

fn list<'a>(node: &'a Value, key: &str) -> &'a [Value] {
    match node.get(key) {
        Some(Value::Array(items)) => items,
        _ => &[],
    }
}

/// Resolves `#` and `#/…` with the escapes of JSON pointers.
fn pointed<'a>(root: &'a Value, target: &str) -> Option<&'a Value> {
    let pointer = target.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    pointer
        .strip_prefix('/')?
        .split('/')
        .try_fold(root, |node, step| {
            let step = step.replace("~1", "/").replace("~0", "~").to_string();
            match node {
                Value::Array(items) => items.get(step.parse::<usize>().ok()?),
                node => node.get(&step),
            }
        })
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
