//! Writes definitions as a schema that `llguidance` holds in full. It uses few keywords, each checked by the tests:
//! no siblings of `$ref` and `anyOf`, no `oneOf`, no `format`, no bounds that are read loosely.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::node::StringRule;
use super::reader::error;
use super::solve::{Alternative, Array, Definition, Key, Object, Solution};
use super::{SchemaError, SchemaLimits, Strictness};

/// Ways that one object may be written out in, to hold a least or greatest number of its properties.
const VARIANTS_MAX: usize = 64;

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
        Ok(Value::Object(document))
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
        for (pattern, key) in &object.patterns {
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
        for variant in variants {
            let mut one = Map::new();
            one.insert("type".into(), "object".into());
            let mut members = Map::new();
            for (index, (name, value)) in properties.iter().enumerate() {
                match variant.uses[index] {
                    Use::Never if is_open => members.insert((*name).clone(), Value::Bool(false)),
                    Use::Never => None,
                    _ => members.insert((*name).clone(), value.clone()),
                };
            }
            one.insert("properties".into(), Value::Object(members));
            let required: Vec<&String> = properties
                .iter()
                .zip(&variant.uses)
                .filter(|(_, usage)| **usage == Use::Required)
                .map(|((name, _), _)| *name)
                .collect();
            if !required.is_empty() {
                one.insert("required".into(), json!(required));
            }
            if !patterns.is_empty() {
                one.insert("patternProperties".into(), Value::Object(patterns.clone()));
            }
            if rest != Value::Bool(true) {
                one.insert("additionalProperties".into(), rest.clone());
            }
            if let Some(min) = variant.min {
                one.insert("minProperties".into(), min.into());
            }
            if let Some(max) = variant.max {
                one.insert("maxProperties".into(), max.into());
            }
            out.push(Value::Object(one));
        }
        Ok(())
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Required,
    Optional,
    Never,
}

/// One way to write an object: which of its properties are used, and how many it has in all.
struct Variant {
    uses: Vec<Use>,
    min: Option<u64>,
    max: Option<u64>,
}

impl Variant {
    fn plain(object: &Object, usable: &[bool]) -> Variant {
        let usage = |(property, usable): (&super::solve::Property, &bool)| match usable {
            true if property.required => Use::Required,
            true => Use::Optional,
            false => Use::Never,
        };
        let uses = object.properties.iter().zip(usable).map(usage).collect();
        Variant {
            uses,
            min: None,
            max: None,
        }
    }
}

/// Writes `minProperties` and `maxProperties` out as choices of properties, which is all that the recogniser can
/// count. Keys that the schema does not name may be repeated in the text, and count once.
fn variants(
    object: &Object,
    usable: &[bool],
    is_open: bool,
) -> Result<Vec<Variant>, (&'static str, String)> {
    let plain = Variant::plain(object, usable);
    let required = object.required();
    let optional: Vec<usize> = (0..plain.uses.len())
        .filter(|i| plain.uses[*i] == Use::Optional)
        .collect();
    let missing = usize::try_from(object.min.saturating_sub(required)).unwrap_or(usize::MAX);
    let spare = object
        .max
        .map(|max| usize::try_from(max.saturating_sub(required)).unwrap_or(usize::MAX));
    let too_many = |keyword| {
        let problem = format!("more than {VARIANTS_MAX} choices of properties, expected fewer");
        (keyword, problem)
    };
    if !is_open {
        let spare = spare.unwrap_or(usize::MAX).min(optional.len());
        let mut out = Vec::new();
        for kept in choices(&optional, spare).ok_or_else(|| too_many("maxProperties"))? {
            for forced in choices(&kept, missing).ok_or_else(|| too_many("minProperties"))? {
                let mut uses = plain.uses.clone();
                for index in &optional {
                    uses[*index] = match (kept.contains(index), forced.contains(index)) {
                        (_, true) => Use::Required,
                        (true, false) => Use::Optional,
                        (false, _) => Use::Never,
                    };
                }
                out.push(Variant {
                    uses,
                    min: None,
                    max: None,
                });
                if out.len() > VARIANTS_MAX {
                    return Err(too_many("minProperties"));
                }
            }
        }
        return Ok(out);
    }
    if missing > 1 {
        let problem = "more than one key beyond the required ones, expected `additionalProperties: false` \
                       or a lower bound";
        return Err(("minProperties", problem.to_string()));
    }
    if spare.is_some() && !optional.is_empty() {
        let problem = "beside optional properties and others, expected `additionalProperties: false` or no bound";
        return Err(("maxProperties", problem.to_string()));
    }
    if optional.len() >= VARIANTS_MAX {
        return Err(too_many("minProperties"));
    }
    if missing == 0 || optional.is_empty() {
        let min = (missing > 0).then_some(object.min);
        return Ok(vec![Variant {
            min,
            max: object.max,
            ..plain
        }]);
    }
    // At least one: any of the optional ones, or none of them and another key.
    let mut out = Vec::new();
    for forced in &optional {
        let mut uses = plain.uses.clone();
        uses[*forced] = Use::Required;
        out.push(Variant {
            uses,
            min: None,
            max: None,
        });
    }
    let mut uses = plain.uses;
    optional.iter().for_each(|index| uses[*index] = Use::Never);
    out.push(Variant {
        uses,
        min: Some(object.min),
        max: None,
    });
    Ok(out)
}

/// All choices of so many of the items, in order; `None` if there are too many, none if there are too few items.
fn choices(items: &[usize], count: usize) -> Option<Vec<Vec<usize>>> {
    let mut out = vec![Vec::new()];
    if count > items.len() {
        return Some(Vec::new());
    }
    for left in (1..=count).rev() {
        let mut longer = Vec::new();
        for chosen in &out {
            let from = chosen.last().map_or(0, |last| {
                items
                    .iter()
                    .position(|item| item == last)
                    .map_or(0, |at| at + 1)
            });
            for item in &items[from..items.len() + 1 - left] {
                let mut next: Vec<usize> = chosen.clone();
                next.push(*item);
                longer.push(next);
            }
            if longer.len() > VARIANTS_MAX {
                return None;
            }
        }
        out = longer;
    }
    Some(out)
}
