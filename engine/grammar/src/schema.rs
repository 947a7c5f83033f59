//! What of a JSON schema can be enforced while tokens are drawn. It must never let a keyword pass that is not
//! enforced: what it can't hold it refuses, by the place and the name of the keyword.

use serde_json::{Value, json};
use std::fmt;

mod ecma;
mod formats;
mod node;
mod number;
mod pattern;
mod place;
mod raw;
mod reader;
mod references;
mod solution;
mod solve;
mod variants;
mod write;

use solution::{Alternative, Object, Property, Solution};
use solve::Undeclared;
use write::Writer;

/// A schema that can't be enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Where: a JSON pointer into the schema, `/properties/city`; empty at its root.
    pub path: String,
    /// The keyword, or what else is at fault there.
    pub keyword: String,
    /// What is wrong with it, and what was expected.
    pub problem: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = match self.path.as_str() {
            "" => "the root",
            path => path,
        };
        write!(f, "`{}` at {at}: {}", self.keyword, self.problem)
    }
}

impl std::error::Error for SchemaError {}

/// How large a schema may be. All in countable units, so that the answer never depends on a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Bytes of its JSON text.
    pub bytes_max: usize,
    /// Levels of nesting, references followed once each.
    pub depth_max: usize,
    /// Schema nodes.
    pub nodes_max: usize,
    /// Values of all `enum` lists together.
    pub enum_values_max: usize,
    /// Bytes of one pattern.
    pub pattern_bytes_max: usize,
}

impl Default for SchemaLimits {
    fn default() -> SchemaLimits {
        SchemaLimits {
            bytes_max: 256 << 10,
            depth_max: 32,
            nodes_max: 10_000,
            enum_values_max: 5_000,
            pattern_bytes_max: 2_000,
        }
    }
}

/// How much of a tool's schema must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// All of it; what can't be enforced is an error.
    Schema,
    /// Names and types of the parameters, as far as they can be enforced; the rest is left to the model.
    Shape,
}

/// The parameters of one tool, ready to be written into a grammar.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolParameters {
    /// In the order of the schema. A grammar writes them in this order, each at most once. An error where the
    /// arguments object has several forms, which formats without a JSON document can't tell apart.
    pub parameters: Result<Vec<Parameter>, SchemaError>,
    /// The whole arguments object, for formats that write JSON: a schema that `llguidance` holds in full.
    pub document: Value,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its key.
    pub name: String,
    /// Whether it must be given.
    pub required: bool,
    /// How its value may be written where strings are raw: any of these. At least one.
    pub forms: Vec<ValueForm>,
}

/// One way to write a value where strings are raw and all else is JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueForm {
    /// JSON under this schema, which admits no string at its root.
    Json(Value),
    /// A string, as it is.
    Raw(RawText),
}

/// The strings that a raw value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawText {
    /// A Lark expression of terminals (regexes, literals, `|`, `&`, `~`) that matches exactly the allowed
    /// strings. Substrings that the format reserves are cut off by whoever uses it.
    pub expression: String,
    /// Whether the empty string is one of them.
    pub admits_empty: bool,
}

impl ToolParameters {
    /// Reads the `parameters` of a tool; None stands for a tool without any.
    ///
    /// # Errors
    /// If the schema can't be enforced, as far as `strictness` asks for it.
    pub fn read(
        schema: Option<&Value>,
        strictness: Strictness,
        limits: &SchemaLimits,
    ) -> Result<ToolParameters, SchemaError> {
        let none = json!({"type": "object"});
        let root = schema.unwrap_or(&none);
        let nodes = reader::read(root, strictness, limits)?;
        let solution = solve::solve(&nodes, Undeclared::Explicit, strictness, limits)?;
        let objects: Vec<Alternative> = solution
            .root
            .alternatives
            .iter()
            .filter_map(as_object)
            .collect();
        if objects.is_empty() {
            let problem = "admits no object, expected a schema of the arguments object";
            return Err(reader::error("", "type", problem));
        }
        let writer = Writer::new(&solution, strictness, limits);
        let document = writer.document("", &objects)?;
        let parameters = match objects.as_slice() {
            [Alternative::Object(object)] => Reading {
                root,
                solution: &solution,
                strictness,
                limits,
            }
            .parameters(object),
            _ => Err(reader::error(
                "",
                "anyOf",
                "several forms of the arguments object, expected one for this tool format",
            )),
        };
        Ok(ToolParameters {
            parameters,
            document,
        })
    }
}

/// What of an alternative is an object: arguments have to be one.
fn as_object(alternative: &Alternative) -> Option<Alternative> {
    match alternative {
        Alternative::Any => Some(Alternative::Object(Object {
            properties: Vec::new(),
            patterns: Vec::new(),
            rest: None,
            min: 0,
            max: None,
        })),
        Alternative::Literals(values) => {
            let objects: Vec<Value> = values
                .iter()
                .filter(|value| value.is_object())
                .cloned()
                .collect();
            (!objects.is_empty()).then_some(Alternative::Literals(objects))
        }
        Alternative::Object(_) => Some(alternative.clone()),
        _ => None,
    }
}

/// What the parameters of one tool are read from.
struct Reading<'a> {
    root: &'a Value,
    solution: &'a Solution,
    strictness: Strictness,
    limits: &'a SchemaLimits,
}

impl Reading<'_> {
    fn parameters(&self, object: &Object) -> Result<Vec<Parameter>, SchemaError> {
        let bounds = [
            ("minProperties", object.min > object.required()),
            ("maxProperties", {
                object
                    .max
                    .is_some_and(|max| max < object.properties.len() as u64)
            }),
        ];
        for (keyword, counts) in bounds {
            if counts && self.strictness == Strictness::Schema {
                let problem =
                    "counts parameters, which this tool format can't; expected no such bound";
                return Err(reader::error("", keyword, problem));
            }
        }
        let mut parameters = Vec::new();
        for property in &object.properties {
            if !self.solution.is_satisfiable(&property.key) {
                // An optional parameter that nothing fits is never written.
                continue;
            }
            parameters.push(Parameter {
                name: property.name.clone(),
                required: property.required,
                forms: self.forms(property)?,
            });
        }
        Ok(parameters)
    }

    fn forms(&self, property: &Property) -> Result<Vec<ValueForm>, SchemaError> {
        let path = format!("/properties/{}", references::escaped(&property.name));
        let free = [Alternative::Any];
        let alternatives = match self.solution.definitions.get(&property.key) {
            Some(definition) => definition.alternatives.as_slice(),
            None => &free,
        };
        let read_as = raw::typed_as_parameter(self.root, &property.name);
        let mut forms = Vec::new();
        forms.extend(raw::raw_text(&path, alternatives, read_as)?.map(ValueForm::Raw));
        let is_free = alternatives.contains(&Alternative::Any) && read_as == raw::ReadAs::Unknown;
        let others: Vec<Alternative> = match is_free {
            true => Vec::new(),
            false => alternatives.iter().flat_map(raw::without_strings).collect(),
        };
        if others
            .iter()
            .any(|other| self.solution.admits_a_value(other))
        {
            let writer = Writer::new(self.solution, self.strictness, self.limits);
            forms.push(ValueForm::Json(writer.document(&path, &others)?));
        }
        match forms.is_empty() {
            false => Ok(forms),
            true => {
                let problem =
                    "only strings that read as other types, expected one that reads as itself";
                Err(reader::error(&path, "type", problem))
            }
        }
    }
}

/// Checks a schema for a whole answer, and gives it in the form that `llguidance` holds in full.
///
/// # Errors
/// If the schema can't be enforced.
pub fn checked_document(schema: &Value, limits: &SchemaLimits) -> Result<Value, SchemaError> {
    let nodes = reader::read(schema, Strictness::Schema, limits)?;
    let solution = solve::solve(&nodes, Undeclared::Allowed, Strictness::Schema, limits)?;
    Writer::new(&solution, Strictness::Schema, limits).document("", &solution.root.alternatives)
}
