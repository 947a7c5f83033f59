//! Reads a JSON object field by field, so that each error names field, value and range, and each
//! field that nobody asked for is known.
//!
//! It must never coerce: a number in quotes is a string.

use crate::http::error::{ApiError, shortened};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// An object being read. A field that is `null` counts as absent.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
    seen: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    /// The object at `path`, which is empty for the request itself.
    pub(crate) fn new(value: &'a Value, path: &str) -> Result<Fields<'a>, ApiError> {
        match value {
            Value::Object(map) => Ok(Fields {
                map,
                path: path.to_string(),
                seen: BTreeSet::new(),
            }),
            other if path.is_empty() => Err(ApiError::new(
                400,
                "invalid_json",
                format!("the body is {}, expected a JSON object", shortened(other)),
            )),
            other => Err(ApiError::value(path, other, "an object")),
        }
    }

    /// The field's name with its parents.
    pub(crate) fn path(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_string(),
            path => format!("{path}.{name}"),
        }
    }

    /// The field's value.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.seen.insert(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// The field's value, or the error that it is missing.
    pub(crate) fn required(
        &mut self,
        name: &'static str,
        expected: &str,
    ) -> Result<&'a Value, ApiError> {
        self.get(name).ok_or_else(|| self.missing(name, expected))
    }

    pub(crate) fn missing(&self, name: &str, expected: &str) -> ApiError {
        let path = self.path(name);
        let message = format!("{path} is missing, expected {expected}");
        ApiError::field("missing_field", path, message)
    }

    /// The error that the field's value isn't what was expected.
    pub(crate) fn wrong(&self, name: &str, value: &Value, expected: &str) -> ApiError {
        ApiError::value(self.path(name), value, expected)
    }

    pub(crate) fn string(&mut self, name: &'static str) -> Result<Option<&'a str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, other, "a string")),
        }
    }

    pub(crate) fn required_string(&mut self, name: &'static str) -> Result<&'a str, ApiError> {
        match self.string(name)? {
            Some(text) => Ok(text),
            None => Err(self.missing(name, "a string")),
        }
    }

    pub(crate) fn bool(&mut self, name: &'static str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(name, other, "true or false")),
        }
    }

    /// A whole number from `min` to `max`. `2.0` is one, as in JSON Schema.
    pub(crate) fn integer(
        &mut self,
        name: &'static str,
        min: i64,
        max: i64,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = value.as_i64().or_else(|| {
            let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
            (float.abs() <= 9_007_199_254_740_992.0).then_some(float as i64)
        });
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let expected = match max {
                    i64::MAX => format!("a whole number of at least {min}"),
                    _ => format!("a whole number from {min} to {max}"),
                };
                Err(self.wrong(name, value, &expected))
            }
        }
    }

    /// A number that `within` accepts; `range` says which these are.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        range: &str,
        within: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_f64().filter(|number| within(*number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, value, &format!("a number {range}"))),
        }
    }

    pub(crate) fn object(&mut self, name: &'static str) -> Result<Option<Fields<'a>>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => Fields::new(value, &self.path(name)).map(Some),
        }
    }

    pub(crate) fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    pub(crate) fn array(&mut self, name: &'static str) -> Result<Option<&'a [Value]>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(self.wrong(name, other, "an array")),
        }
    }

    /// A known field that can't be served: an error if it is there and not its `harmless` value.
    pub(crate) fn refuse(
        &mut self,
        name: &'static str,
        harmless: impl Fn(&Value) -> bool,
        why: &str,
    ) -> Result<(), ApiError> {
        match self.get(name) {
            Some(value) if !harmless(value) => Err(ApiError::unsupported(self.path(name), why)),
            _ => Ok(()),
        }
    }

    /// Marks fields that are accepted and have no effect here.
    pub(crate) fn accept(&mut self, names: &[&'static str]) {
        self.seen.extend(names);
    }

    /// The fields that nobody asked for.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let names = self.map.keys().map(String::as_str);
        let unknown = names.filter(|name| !self.seen.contains(name));
        unknown.map(|name| self.path(name)).collect()
    }
}
