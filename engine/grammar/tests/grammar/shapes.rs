//! A subset of JSON schemas that can be drawn at random, written as a schema, and checked by hand.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// One schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Null,
    Boolean,
    /// Whole numbers between two bounds, if any.
    Integer(Option<(i64, i64)>),
    Number,
    /// Strings of at least and at most so many characters.
    Text(u32, Option<u32>),
    /// One of these strings: `const` for one, `enum` for more.
    Words(Vec<&'static str>),
    /// One of these whole numbers.
    Numbers(Vec<i64>),
    Array(Box<Shape>, u32, Option<u32>),
    Object(Vec<Field>),
    AnyOf(Vec<Shape>),
    Nullable(Box<Shape>),
    /// A definition by its place in [`Parameters`].
    Defined(usize),
}

/// One property of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: &'static str,
    pub required: bool,
    pub shape: Shape,
}

/// The schema of a tool's arguments, or of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    pub fields: Vec<Field>,
    pub definitions: Vec<Shape>,
}

impl Parameters {
    pub fn new(fields: Vec<Field>, first: Shape) -> Parameters {
        let next = Field {
            name: "next",
            required: false,
            shape: Shape::Defined(1),
        };
        let value = Field {
            name: "v",
            required: true,
            shape: Shape::Integer(Some((0, 3))),
        };
        Parameters {
            fields,
            definitions: vec![first, Shape::Object(vec![value, next])],
        }
    }

    pub fn schema(&self) -> Value {
        let mut schema = object_schema(&self.fields);
        let definitions = self.definitions.iter().enumerate();
        let definitions: Map<String, Value> = definitions
            .map(|(idx, shape)| (format!("d{idx}"), shape.schema()))
            .collect();
        schema["$defs"] = Value::Object(definitions);
        schema
    }

    /// Whether arguments are right.
    pub fn admits(&self, arguments: &Value) -> bool {
        self.shape_admits(&Shape::Object(self.fields.clone()), arguments)
    }

    fn shape_admits(&self, shape: &Shape, value: &Value) -> bool {
        match shape {
            Shape::Null => value.is_null(),
            Shape::Boolean => value.is_boolean(),
            Shape::Integer(bounds) => match whole(value) {
                Some(number) => bounds.is_none_or(|(low, high)| {
                    number.is_none_or(|number| (low..=high).contains(&number))
                }),
                None => false,
            },
            Shape::Number => value.is_number(),
            Shape::Text(min, max) => value.as_str().is_some_and(|text| {
                let num_chars = text.chars().count() as u32;
                num_chars >= *min && max.is_none_or(|max| num_chars <= max)
            }),
            Shape::Words(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Shape::Numbers(numbers) => {
                whole(value).is_some_and(|number| number.is_some_and(|n| numbers.contains(&n)))
            }
            Shape::Array(item, min, max) => value.as_array().is_some_and(|items| {
                let num_items = items.len() as u32;
                num_items >= *min
                    && max.is_none_or(|max| num_items <= max)
                    && items.iter().all(|value| self.shape_admits(item, value))
            }),
            Shape::Object(fields) => value.as_object().is_some_and(|members| {
                let known = |name: &String| fields.iter().any(|field| field.name == name);
                members.keys().all(known)
                    && fields.iter().all(|field| match members.get(field.name) {
                        Some(value) => self.shape_admits(&field.shape, value),
                        None => !field.required,
                    })
            }),
            Shape::AnyOf(shapes) => shapes.iter().any(|shape| self.shape_admits(shape, value)),
            Shape::Nullable(shape) => value.is_null() || self.shape_admits(shape, value),
            Shape::Defined(idx) => self.shape_admits(&self.definitions[*idx], value),
        }
    }
}

/// Whether a number is whole, and its value where that fits.
fn whole(value: &Value) -> Option<Option<i64>> {
    let number = value.as_number()?;
    if let Some(number) = number.as_i64() {
        return Some(Some(number));
    }
    let is_whole = number.as_f64().is_none_or(|number| number.fract() == 0.0);
    let small = number.as_f64().filter(|number| number.abs() < 1e15);
    is_whole.then(|| small.map(|number| number as i64))
}

impl Shape {
    fn schema(&self) -> Value {
        match self {
            Shape::Null => json!({"type": "null"}),
            Shape::Boolean => json!({"type": "boolean"}),
            Shape::Integer(None) => json!({"type": "integer"}),
            Shape::Integer(Some((low, high))) => {
                json!({"type": "integer", "minimum": low, "maximum": high})
            }
            Shape::Number => json!({"type": "number"}),
            Shape::Text(min, max) => {
                let mut schema = json!({"type": "string"});
                if *min > 0 {
                    schema["minLength"] = json!(min);
                }
                if let Some(max) = max {
                    schema["maxLength"] = json!(max);
                }
                schema
            }
            Shape::Words(words) => match &words[..] {
                [word] => json!({"const": word}),
                words => json!({"type": "string", "enum": words}),
            },
            Shape::Numbers(numbers) => json!({"type": "integer", "enum": numbers}),
            Shape::Array(item, min, max) => {
                let mut schema = json!({"type": "array", "items": item.schema()});
                if *min > 0 {
                    schema["minItems"] = json!(min);
                }
                if let Some(max) = max {
                    schema["maxItems"] = json!(max);
                }
                schema
            }
            Shape::Object(fields) => object_schema(fields),
            Shape::AnyOf(shapes) => {
                let schemas: Vec<Value> = shapes.iter().map(Shape::schema).collect();
                json!({"anyOf": schemas})
            }
            Shape::Nullable(shape) => json!({"anyOf": [shape.schema(), {"type": "null"}]}),
            Shape::Defined(idx) => json!({"$ref": format!("#/$defs/d{idx}")}),
        }
    }
}

fn object_schema(fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| (field.name.to_string(), field.shape.schema()))
        .collect();
    let required = fields.iter().filter(|field| field.required);
    let required: Vec<&str> = required.map(|field| field.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

const WORDS: &[&str] = &[
    "a", "ab", "x y", "é", "null", "12", "true", "[1]", "", "\n", "a\"b", "</", "{",
];
const NAMES: &[&str] = &["a", "ab", "b", "seats", "true"];

fn leaf() -> impl Strategy<Value = Shape> {
    let words = proptest::sample::subsequence(WORDS, 1..4);
    let numbers = proptest::sample::subsequence(vec![-12_i64, 0, 1, 12, 120], 1..4);
    prop_oneof![
        2 => Just(Shape::Null),
        2 => Just(Shape::Boolean),
        2 => Just(Shape::Integer(None)),
        3 => (-130_i64..40, 0_i64..150).prop_map(|(low, len)| Shape::Integer(Some((low, low + len)))),
        1 => Just(Shape::Number),
        2 => Just(Shape::Text(0, None)),
        3 => (0_u32..3, 0_u32..3).prop_map(|(min, len)| Shape::Text(min, Some(min + len))),
        1 => (0_u32..3).prop_map(|min| Shape::Text(min, None)),
        3 => words.prop_map(Shape::Words),
        2 => numbers.prop_map(Shape::Numbers),
        2 => (0_usize..2).prop_map(Shape::Defined),
    ]
}

fn fields(shape: impl Strategy<Value = Shape>) -> impl Strategy<Value = Vec<Field>> {
    let names = proptest::sample::subsequence(NAMES, 0..4).prop_shuffle();
    let rest = proptest::collection::vec((any::<bool>(), shape), 4);
    (names, rest).prop_map(|(names, rest)| {
        let fields = names.into_iter().zip(rest);
        let field = |(name, (required, shape))| Field {
            name,
            required,
            shape,
        };
        fields.map(field).collect()
    })
}

fn shape() -> impl Strategy<Value = Shape> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        let bounds = (0_u32..3, proptest::option::of(0_u32..3));
        prop_oneof![
            (inner.clone(), bounds).prop_map(|(item, (min, len))| {
                Shape::Array(Box::new(item), min, len.map(|len| min + len))
            }),
            fields(inner.clone()).prop_map(Shape::Object),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Shape::AnyOf),
            inner.prop_map(|inner| Shape::Nullable(Box::new(inner))),
        ]
    })
}

/// Text, or something that is none: where strings are raw the two have to be told apart.
fn text_or_other() -> impl Strategy<Value = Shape> {
    let text = prop_oneof![
        2 => Just(Shape::Text(0, None)),
        1 => (0_u32..3).prop_map(|min| Shape::Text(min, Some(min + 2))),
        1 => Just(Shape::Words(vec!["null", "12a", "x y", "1"])),
    ];
    let others = proptest::collection::vec(leaf(), 1..3);
    (text, others).prop_map(|(text, mut others)| {
        others.push(text);
        Shape::AnyOf(others)
    })
}

/// Arguments of any shape.
pub fn parameters() -> impl Strategy<Value = Parameters> {
    // The definitions refer to nothing but themselves.
    let first = leaf().prop_map(|shape| match shape {
        Shape::Defined(_) => Shape::Boolean,
        shape => shape,
    });
    let shape = prop_oneof![3 => shape(), 1 => text_or_other()];
    (fields(shape), first).prop_map(|(fields, first)| Parameters::new(fields, first))
}
