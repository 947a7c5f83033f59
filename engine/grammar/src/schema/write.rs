//! Writes definitions as a schema that `llguidance` holds in full. It uses few keywords, each checked by the tests:
//! no siblings of `$ref` and `anyOf`, no `oneOf`, no `format`, no bounds that are read loosely.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::node::StringRule;
use super::pattern::{Matcher, Pattern};
use super::reader::error;
use super::solution::{Alternative, Array, Definition, Key, Object, Solution};
use super::variants::{Use, Variant, variants};
use super::{SchemaError, SchemaLimits, Strictness};

/// Optional properties that may follow each other with no required one between, and that the alternatives of one
/// place may begin with: the recogniser keeps a few items for each, and takes 2 000 in all.
const OPTIONAL_MAX: usize = 300;

/// Schemas that one document may hold: the recogniser takes 50 000 steps over them, three or four for each.
const WRITTEN_MAX: usize = 14_000;

/// Writes schemas out of one solution.
pub(super) struct Writer<'a> {
    solution: &'a Solution,
    strictness: Strictness,
    depth_max: usize,
    nodes_max: usize,
    nodes: usize,
    /// How often each definition is referred to, from the one that is being written.
    uses: BTreeMap<&'a Key, usize>,
    /// Names of those that are written once and referred to.
    names: BTreeMap<&'a Key, String>,
    written: Map<String, Value>,
    matcher: Matcher,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        solution: &'a Solution,
        strictness: Strictness,
        limits: &SchemaLimits,
    ) -> Writer<'a> {
        Writer {
            solution,
            strictness,
            depth_max: 2 * limits.depth_max,
            nodes_max: 4 * limits.nodes_max,
            nodes: 0,
            uses: BTreeMap::new(),
            names: BTreeMap::new(),
            written: Map::new(),
            matcher: Matcher::default(),
        }
    }

    /// A whole document: any of the alternatives, with what they refer to.
    ///
    /// # Errors
    /// If something in them can't be written, or they are too large.
    pub(super) fn document(
        mut self,
        path: &str,
        alternatives: &'a [Alternative],
    ) -> Result<Value, SchemaError> {
        self.count_uses(alternatives);
        let mut document = match self.alternatives(path, alternatives, 0)? {
            Value::Object(document) => document,
            Value::Bool(false) => {
                return Err(error(
                    path,
                    "schema",
                    "no value satisfies it, expected one that some value does",
                ));
            }
            _ => Map::new(),
        };
        document.insert("x-guidance".into(), spelling());
        if !self.written.is_empty() {
            document.insert("$defs".into(), Value::Object(self.written));
        }
        let document = Value::Object(document);
        let written = num_objects(&document);
        if written > WRITTEN_MAX {
            let problem =
                format!("{written} schemas when written out, expected at most {WRITTEN_MAX}");
            return Err(error(path, "schema", problem));
        }
        Ok(document)
    }

    fn count_uses(&mut self, alternatives: &'a [Alternative]) {
        let solution = self.solution;
        let mut pending: Vec<&'a Key> = alternatives
            .iter()
            .flat_map(Alternative::children)
            .collect();
        while let Some(key) = pending.pop() {
            let uses = self.uses.entry(key).or_insert(0);
            *uses += 1;
            if *uses == 1
                && let Some(definition) = solution.definitions.get(key)
            {
                pending.extend(
                    definition
                        .alternatives
                        .iter()
                        .flat_map(Alternative::children),
                );
            }
        }
    }

    /// What stands where a definition is needed: itself, or a reference to it.
    fn child(&mut self, key: &'a Key, depth: usize) -> Result<Value, SchemaError> {
        let Some(definition) = self.solution.definitions.get(key).filter(|d| d.satisfiable) else {
            return Ok(Value::Bool(false));
        };
        let is_flat = definition
            .alternatives
            .iter()
            .all(|one| one.children().is_empty());
        if is_flat || self.uses.get(key).is_none_or(|uses| *uses < 2) {
            return self.definition(definition, depth);
        }
        let name = match self.names.get(key) {
            Some(name) => name.clone(),
            None => {
                let name = format!("d{}", self.names.len());
                self.names.insert(key, name.clone());
                let value = self.definition(definition, depth)?;
                self.written.insert(name.clone(), value);
                name
            }
        };
        Ok(json!({ "$ref": format!("#/$defs/{name}") }))
    }

    fn definition(
        &mut self,
        definition: &'a Definition,
        depth: usize,
    ) -> Result<Value, SchemaError> {
        self.alternatives(&definition.path, &definition.alternatives, depth + 1)
    }

    fn alternatives(
        &mut self,
        path: &str,
        alternatives: &'a [Alternative],
        depth: usize,
    ) -> Result<Value, SchemaError> {
        if depth > self.depth_max {
            let problem = format!(
                "nested too deep with its references followed, expected at most {} levels",
                self.depth_max
            );
            return Err(error(path, "schema", problem));
        }
        let mut out = Vec::new();
        for alternative in alternatives {
            if self.solution.admits_a_value(alternative) {
                self.alternative(path, alternative, depth, &mut out)?;
            }
        }
        let runs: Vec<[usize; 2]> = out.iter().map(optional_runs).collect();
        let at_start: usize = runs.iter().map(|[first, _]| first).sum();
        let longest = runs.iter().map(|[_, longest]| *longest).max().unwrap_or(0);
        if at_start.max(longest) > OPTIONAL_MAX {
            let problem = format!(
                "{} optional ones in a row, expected at most {OPTIONAL_MAX} or more in `required`",
                at_start.max(longest)
            );
            return Err(error(path, "properties", problem));
        }
        self.nodes += out.len();
        if self.nodes > self.nodes_max {
            let problem = format!(
                "more than {} schemas when written out, expected fewer",
                self.nodes_max
            );
            return Err(error(path, "schema", problem));
        }
        Ok(match out.len() {
            0 => Value::Bool(false),
            1 => out.remove(0),
            _ if out.contains(&Value::Bool(true)) => Value::Bool(true),
            _ => json!({ "anyOf": out }),
        })
    }

    fn alternative(
        &mut self,
        path: &str,
        alternative: &'a Alternative,
        depth: usize,
        out: &mut Vec<Value>,
    ) -> Result<(), SchemaError> {
        match alternative {
            Alternative::Any => out.push(Value::Bool(true)),
            Alternative::Null => out.push(json!({"type": "null"})),
            Alternative::Boolean => out.push(json!({"type": "boolean"})),
            Alternative::Literals(values) => out.push(match values.as_slice() {
                [value] => json!({ "const": value }),
                values => json!({ "enum": values }),
            }),
            Alternative::Number(rule) => match (rule.write(), self.strictness) {
                (Ok(value), _) => out.push(value),
                (Err((keyword, problem)), Strictness::Schema) => {
                    return Err(error(path, keyword, problem));
                }
                (Err(_), Strictness::Shape) => {
                    out.push(json!({"type": if rule.integer { "integer" } else { "number" }}));
                }
            },
            Alternative::String(rule) => out.push(string(rule)),
            Alternative::Array(array) => out.push(self.array(array, depth)?),
            Alternative::Object(object) => self.object(path, object, depth, out)?,
        }
        Ok(())
    }

    fn array(&mut self, array: &'a Array, depth: usize) -> Result<Value, SchemaError> {
        let mut out = Map::new();
        out.insert("type".into(), "array".into());
        let (mut prefix, mut max) = (Vec::new(), array.max);
        for (index, key) in array.prefix.iter().enumerate() {
            if !self.solution.is_satisfiable(key) {
                max = Some(index as u64);
                break;
            }
            prefix.push(self.child(key, depth)?);
        }
        let is_full = max.is_some_and(|max| max <= prefix.len() as u64);
        let items = match is_full {
            true => Value::Bool(false),
            false => self.child(&array.items, depth)?,
        };
        if !prefix.is_empty() {
            out.insert("prefixItems".into(), prefix.into());
        }
        if items != Value::Bool(true) {
            out.insert("items".into(), items);
        }
        if array.min > 0 {
            out.insert("minItems".into(), array.min.into());
        }
        if let Some(max) = max {
            out.insert("maxItems".into(), max.into());
        }
        Ok(Value::Object(out))
    }

    /// The patterns for keys. Where one matches a declared property the recogniser merges both schemas once
    /// more; only simple ones survive that.
    fn separate_patterns(
        &self,
        path: &str,
        object: &'a Object,
    ) -> Result<&'a [(Pattern, Key)], SchemaError> {
        let solution = self.solution;
        let is_simple = |key: &Key| {
            let definition = solution.definitions.get(key);
            definition.is_some_and(|d| {
                d.alternatives.len() <= 8 && d.alternatives.iter().all(is_merged_well)
            })
        };
        for (pattern, key) in &object.patterns {
            for property in &object.properties {
                let is_clear = key.is_empty()
                    || !solution.is_satisfiable(&property.key)
                    || (is_simple(key) && is_simple(&property.key));
                if is_clear
                    || !self
                        .matcher
                        .matches(pattern, &property.name)
                        .unwrap_or(true)
                {
                    continue;
                }
                if self.strictness == Strictness::Shape {
                    return Ok(&[]);
                }
                let problem = format!(
                    "a pattern matches the declared property `{}` too, expected one that doesn't",
                    property.name
                );
                return Err(error(path, "patternProperties", problem));
            }
        }
        Ok(&object.patterns)
    }

    fn object(
        &mut self,
        path: &str,
        object: &'a Object,
        depth: usize,
        out: &mut Vec<Value>,
    ) -> Result<(), SchemaError> {
        let mut properties = Vec::new();
        for property in &object.properties {
            properties.push((&property.name, self.child(&property.key, depth)?));
        }
        let mut patterns = Map::new();
        for (pattern, key) in self.separate_patterns(path, object)? {
            patterns.insert(
                format!("^(?:{})$", pattern.as_regex()),
                self.child(key, depth)?,
            );
        }
        let rest = match &object.rest {
            Some(key) => self.child(key, depth)?,
            None => Value::Bool(false),
        };
        let usable: Vec<bool> = properties
            .iter()
            .map(|(_, value)| *value != Value::Bool(false))
            .collect();
        let is_open =
            rest != Value::Bool(false) || patterns.values().any(|v| *v != Value::Bool(false));
        let variants = match (variants(object, &usable, is_open), self.strictness) {
            (Ok(variants), _) => variants,
            (Err((keyword, problem)), Strictness::Schema) => {
                return Err(error(path, keyword, problem));
            }
            (Err(_), Strictness::Shape) => vec![Variant::plain(object, &usable)],
        };
        let parts = ObjectParts {
            properties,
            patterns,
            rest,
            is_open,
        };
        out.extend(variants.iter().map(|variant| parts.write(variant)));
        Ok(())
    }
}

/// The written parts of an object.
struct ObjectParts<'a> {
    properties: Vec<(&'a String, Value)>,
    patterns: Map<String, Value>,
    rest: Value,
    is_open: bool,
}

impl ObjectParts<'_> {
    fn write(&self, variant: &Variant) -> Value {
        let mut out = Map::new();
        out.insert("type".into(), "object".into());
        let mut members = Map::new();
        let mut required = Vec::new();
        for ((name, value), usage) in self.properties.iter().zip(&variant.uses) {
            match usage {
                // Where other keys are open, it has to be said that this one is not among them.
                Use::Never if self.is_open => members.insert((*name).clone(), Value::Bool(false)),
                Use::Never => None,
                Use::Required | Use::Optional => members.insert((*name).clone(), value.clone()),
            };
            if *usage == Use::Required {
                required.push(Value::from(name.as_str()));
            }
        }
        out.insert("properties".into(), Value::Object(members));
        if !required.is_empty() {
            out.insert("required".into(), required.into());
        }
        if !self.patterns.is_empty() {
            out.insert(
                "patternProperties".into(),
                Value::Object(self.patterns.clone()),
            );
        }
        if self.rest != Value::Bool(true) {
            out.insert("additionalProperties".into(), self.rest.clone());
        }
        if let Some(min) = variant.min {
            out.insert("minProperties".into(), min.into());
        }
        if let Some(max) = variant.max {
            out.insert("maxProperties".into(), max.into());
        }
        Value::Object(out)
    }
}

/// How many JSON objects a document is made of: its schemas, and a few more.
fn num_objects(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(num_objects).sum(),
        Value::Object(members) => 1 + members.values().map(num_objects).sum::<usize>(),
        _ => 0,
    }
}

/// How many optional properties a written object begins with, and the longest run of them.
fn optional_runs(object: &Value) -> [usize; 2] {
    let Some(Value::Object(properties)) = object.get("properties") else {
        return [0, 0];
    };
    let required = object.get("required").and_then(Value::as_array);
    let required: BTreeSet<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let is_required = |name: &String| required.contains(name.as_str());
    let first = properties
        .keys()
        .take_while(|name| !is_required(name))
        .count();
    let (mut run, mut longest) = (0, 0);
    for name in properties.keys() {
        run = if is_required(name) { 0 } else { run + 1 };
        longest = longest.max(run);
    }
    [first, longest]
}

/// Whether the recogniser merges this schema with another one of its kind as we do.
fn is_merged_well(alternative: &Alternative) -> bool {
    match alternative {
        Alternative::Null | Alternative::Boolean | Alternative::String(_) => true,
        Alternative::Number(rule) => rule.steps.is_empty(),
        Alternative::Literals(values) => values.iter().all(|v| !v.is_array() && !v.is_object()),
        Alternative::Any | Alternative::Array(_) | Alternative::Object(_) => false,
    }
}

/// How JSON is spelled: one space of any length up to 64 between tokens, and strings with the short escapes
/// alone, so that each key has one spelling.
fn spelling() -> Value {
    json!({
        "item_separator": ",",
        "key_separator": ":",
        "whitespace_pattern": "[\\x20\\x0A\\x0D\\x09]{1,64}",
        "json_allowed_escapes": "nrbtf\\\"",
    })
}

fn string(rule: &StringRule) -> Value {
    let mut out = Map::new();
    out.insert("type".into(), "string".into());
    if rule.min > 0 {
        out.insert("minLength".into(), rule.min.into());
    }
    if let Some(max) = rule.max {
        out.insert("maxLength".into(), max.into());
    }
    let mut patterns = rule
        .patterns
        .iter()
        .map(|pattern| format!("^(?:{})$", pattern.as_regex()));
    if let Some(first) = patterns.next() {
        out.insert("pattern".into(), first.into());
    }
    let others: Vec<Value> = patterns
        .map(|pattern| json!({"type": "string", "pattern": pattern}))
        .collect();
    if !others.is_empty() {
        out.insert("allOf".into(), others.into());
    }
    Value::Object(out)
}
