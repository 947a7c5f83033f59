//! One schema object while its keywords are read: those that hold values rather than schemas. It must never round a
//! number, nor take a word that it does not know.

use serde_json::{Map, Value};

use super::node::{Literals, Node, Types};
use super::number::{Bound, Decimal};
use super::reader::error;
use super::{SchemaError, formats};

/// The drafts that a schema may name.
const DRAFTS: &[&str] = &[
    "json-schema.org/draft/2020-12/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-04/schema",
];

/// The longest string, and the most items, that a bound may ask for.
const COUNT_MAX: u64 = 1_000_000;

/// Why a keyword could not be read.
pub(super) enum Fault {
    /// It means something that can't be enforced.
    Unenforced(SchemaError),
    /// It means nothing, or is too large.
    Broken(SchemaError),
}

impl From<SchemaError> for Fault {
    fn from(error: SchemaError) -> Fault {
        Fault::Broken(error)
    }
}

/// The schema object whose keywords are being read.
pub(super) struct Place<'a> {
    pub(super) node: Node,
    pub(super) path: String,
    pub(super) keywords: &'a Map<String, Value>,
    pub(super) depth: usize,
}

impl Place<'_> {
    pub(super) fn unenforced(&self, keyword: &str, problem: impl Into<String>) -> Fault {
        Fault::Unenforced(error(&self.path, keyword, problem))
    }

    pub(super) fn broken(&self, keyword: &str, problem: impl Into<String>) -> Fault {
        Fault::Broken(error(&self.path, keyword, problem))
    }

    pub(super) fn text<'v>(&self, keyword: &str, value: &'v Value) -> Result<&'v str, Fault> {
        value
            .as_str()
            .ok_or_else(|| self.broken(keyword, "expected a string"))
    }

    pub(super) fn types(&mut self, value: &Value) -> Result<(), Fault> {
        let words = match value {
            Value::Array(words) if !words.is_empty() => words.as_slice(),
            word => std::slice::from_ref(word),
        };
        let mut types = Types::NONE;
        for word in words {
            let named = word.as_str().and_then(Types::named);
            types = types.or(named.ok_or_else(|| {
                self.broken("type", format!("{word}, expected a type of JSON Schema"))
            })?);
        }
        self.node.types = self.node.types.and(types);
        self.node.number.integer = types.and(Types::NUMBER) == Types::INTEGER;
        Ok(())
    }

    /// Checks that a literal value can be written exactly.
    pub(super) fn literal<'v>(
        &self,
        keyword: &str,
        value: &'v Value,
        depth: usize,
    ) -> Result<&'v Value, Fault> {
        const DEPTH_MAX: usize = 32;
        match value {
            Value::Number(number) if Decimal::of(number).is_none() => {
                // Without it a value would be read by another type, so it is not left out either.
                let problem = format!("{number}, expected a number that a double holds exactly");
                return Err(self.broken(keyword, problem));
            }
            Value::Array(_) | Value::Object(_) if depth == DEPTH_MAX => {
                return Err(self.broken(keyword, format!("nested deeper than {DEPTH_MAX} levels")));
            }
            Value::Array(items) => {
                for item in items {
                    self.literal(keyword, item, depth + 1)?;
                }
            }
            Value::Object(members) => {
                for member in members.values() {
                    self.literal(keyword, member, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(value)
    }

    /// Lists are joined: a value must be in each.
    pub(super) fn add_literals(&mut self, values: &[Value]) {
        let mut listed = Literals::default();
        values.iter().for_each(|value| listed.push(value));
        if let Some(old) = &self.node.literals {
            listed.retain(|value| old.contains(value));
        }
        self.node.literals = Some(listed);
    }

    pub(super) fn decimal(&self, keyword: &str, value: &Value) -> Result<Decimal, Fault> {
        let Value::Number(number) = value else {
            return Err(self.broken(keyword, "expected a number"));
        };
        Decimal::of(number).ok_or_else(|| {
            let problem = format!("{number}, expected a number that a double holds exactly");
            self.unenforced(keyword, problem)
        })
    }

    pub(super) fn bound(&mut self, keyword: &str, value: &Value) -> Result<(), Fault> {
        let is_lower = matches!(keyword, "minimum" | "exclusiveMinimum");
        let open = keyword.starts_with("exclusive");
        let at = match (value, is_lower) {
            (Value::Bool(false), _) if open => return Ok(()),
            // Draft 4: the word says that the bound beside it is open.
            (Value::Bool(true), true) if open => self.keywords.get("minimum"),
            (Value::Bool(true), false) if open => self.keywords.get("maximum"),
            (value, _) => Some(value),
        };
        let at = at.ok_or_else(|| self.broken(keyword, "expected a bound beside it"))?;
        let bound = Bound {
            at: self.decimal(keyword, at)?,
            open,
        };
        match is_lower {
            true => self.node.number.raise(bound),
            false => self.node.number.lower(bound),
        }
        Ok(())
    }

    pub(super) fn step(&mut self, value: &Value) -> Result<(), Fault> {
        let step = self.decimal("multipleOf", value)?;
        if !step.is_positive() {
            return Err(self.broken("multipleOf", format!("{value}, expected more than 0")));
        }
        self.node.number.steps.push(step);
        Ok(())
    }

    pub(super) fn size(&mut self, keyword: &str, value: &Value) -> Result<(), Fault> {
        let count = self.count(keyword, value)?;
        let node = &mut self.node;
        match keyword {
            "minLength" => node.string.min = count,
            "maxLength" => node.string.max = Some(count),
            "minItems" => node.array.min = count,
            "maxItems" => node.array.max = Some(count),
            "minProperties" => node.object.min = count,
            _ => node.object.max = Some(count),
        }
        Ok(())
    }

    pub(super) fn count(&self, keyword: &str, value: &Value) -> Result<u64, Fault> {
        let whole = match value {
            Value::Number(number) => Decimal::of(number).and_then(Decimal::whole),
            _ => None,
        };
        match whole.and_then(|whole| u64::try_from(whole).ok()) {
            Some(count) if count <= COUNT_MAX => Ok(count),
            Some(count) => {
                Err(self.unenforced(keyword, format!("{count}, expected at most {COUNT_MAX}")))
            }
            None => Err(self.broken(keyword, format!("{value}, expected a whole number from 0"))),
        }
    }

    pub(super) fn format(&mut self, value: &Value) -> Result<(), Fault> {
        let name = self.text("format", value)?;
        let patterns = formats::of(name).ok_or_else(|| {
            let known = formats::NAMES.join(", ");
            self.unenforced(
                "format",
                format!("`{name}` can't be enforced, expected one of {known}"),
            )
        })?;
        self.node.string.patterns.extend(patterns);
        Ok(())
    }

    pub(super) fn draft(&self, value: &Value) -> Result<(), Fault> {
        let name = self.text("$schema", value)?.trim_end_matches('#');
        let name = name
            .strip_prefix("https://")
            .or(name.strip_prefix("http://"));
        match name.is_some_and(|name| DRAFTS.contains(&name)) {
            true => Ok(()),
            false => Err(self.unenforced(
                "$schema",
                format!("{value}, expected a draft of json-schema.org from 4 to 2020-12"),
            )),
        }
    }
}
