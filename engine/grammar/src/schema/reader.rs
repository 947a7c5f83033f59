//! Reads a schema from JSON into nodes: limits first, then each keyword by name. It must never skip a keyword that
//! constrains: what is neither enforced nor an annotation is refused.

use std::collections::BTreeMap;

use serde_json::Value;

use super::node::{Node, NodeId, Schema, Types, Union};
use super::pattern::{Matcher, Pattern};
use super::place::{Fault, Place};
use super::references::{escaped, normal_pointer, refuse_cycles};
use super::{SchemaError, SchemaLimits, Strictness};

/// Keywords that say nothing about which values are valid.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "example",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$defs",
    "definitions",
    "$anchor",
    "$dynamicAnchor",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "discriminator",
    "externalDocs",
    "xml",
];

/// Branches that one union may have.
const BRANCHES_MAX: usize = 256;

/// Reads a schema and all that it refers to.
///
/// # Errors
/// If it is too large, malformed, or has a keyword that can't be enforced.
pub(super) fn read(
    root: &Value,
    strictness: Strictness,
    limits: &SchemaLimits,
) -> Result<Schema, SchemaError> {
    let bytes = root.to_string().len();
    if bytes > limits.bytes_max {
        let problem = format!("{bytes} bytes, expected at most {}", limits.bytes_max);
        return Err(error("", "schema", problem));
    }
    let mut reader = Reader {
        root,
        strictness,
        limits,
        nodes: Vec::new(),
        places: BTreeMap::new(),
        pending: Vec::new(),
        enum_values: 0,
    };
    let root_id = reader.place("")?;
    while let Some((id, path)) = reader.pending.pop() {
        let value = root.pointer(&path).unwrap_or(&Value::Null);
        reader.node(id, value, 0)?;
    }
    let mut schema = Schema {
        nodes: reader.nodes,
        root: root_id,
        matcher: Matcher::default(),
    };
    refuse_cycles(&mut schema, strictness)?;
    Ok(schema)
}

pub(super) fn error(path: &str, keyword: &str, problem: impl Into<String>) -> SchemaError {
    SchemaError {
        path: path.into(),
        keyword: keyword.into(),
        problem: problem.into(),
    }
}

struct Reader<'a> {
    root: &'a Value,
    strictness: Strictness,
    limits: &'a SchemaLimits,
    nodes: Vec<Node>,
    /// Nodes by JSON pointer: the same place is one node, however it is reached.
    places: BTreeMap<String, NodeId>,
    /// What is referred to and still unread.
    pending: Vec<(NodeId, String)>,
    enum_values: usize,
}

impl Reader<'_> {
    fn new_node(&mut self, path: &str) -> Result<NodeId, SchemaError> {
        if self.nodes.len() >= self.limits.nodes_max {
            let problem = format!(
                "too many schemas, expected at most {}",
                self.limits.nodes_max
            );
            return Err(error(path, "schema", problem));
        }
        self.nodes.push(Node::free(path));
        Ok(self.nodes.len() - 1)
    }

    /// The node of a place that is referred to.
    fn place(&mut self, path: &str) -> Result<NodeId, SchemaError> {
        if let Some(id) = self.places.get(path) {
            return Ok(*id);
        }
        let id = self.new_node(path)?;
        self.places.insert(path.to_string(), id);
        self.pending.push((id, path.to_string()));
        Ok(id)
    }

    /// Reads a schema inside another one.
    fn child(&mut self, value: &Value, path: String, depth: usize) -> Result<NodeId, SchemaError> {
        if let Some(id) = self.places.get(&path).copied() {
            // Referred to before it was met here.
            if let Some(at) = self.pending.iter().position(|(pending, _)| *pending == id) {
                self.pending.remove(at);
                self.node(id, value, depth)?;
            }
            return Ok(id);
        }
        let id = self.new_node(&path)?;
        self.places.insert(path, id);
        self.node(id, value, depth)?;
        Ok(id)
    }

    fn node(&mut self, id: NodeId, value: &Value, depth: usize) -> Result<(), SchemaError> {
        let path = self.nodes[id].path.clone();
        if depth > self.limits.depth_max {
            let problem = format!(
                "nested too deep, expected at most {} levels",
                self.limits.depth_max
            );
            return Err(error(&path, "schema", problem));
        }
        let keywords = match value {
            Value::Bool(true) => return Ok(()),
            Value::Bool(false) => {
                self.nodes[id].types = Types::NONE;
                return Ok(());
            }
            Value::Object(keywords) => keywords,
            _ => return Err(error(&path, "schema", "expected an object or a boolean")),
        };
        let mut place = Place {
            node: Node::free(&path),
            path,
            keywords,
            depth,
        };
        for (keyword, value) in keywords {
            let read = self.keyword(&mut place, keyword, value);
            self.soften(read)?;
        }
        let mut node = place.node;
        if keywords.get("nullable") == Some(&Value::Bool(true)) {
            // OpenAPI: this, or null.
            let inner = self.new_node(&node.path)?;
            let null = self.new_node(&node.path)?;
            self.nodes[null] = Node::of_types(&node.path, Types::NULL);
            let union = Union {
                keyword: "anyOf",
                branches: vec![inner, null],
            };
            let outer = Node {
                unions: vec![union],
                ..Node::free(&node.path)
            };
            self.nodes[id] = outer;
            self.split(inner, node)?;
            return Ok(());
        }
        node.path = self.nodes[id].path.clone();
        self.split(id, node)
    }

    /// Stores a node; one with unions gets its own keywords as a node beside them, so that branches can be
    /// compared under what they share.
    fn split(&mut self, id: NodeId, mut node: Node) -> Result<(), SchemaError> {
        if !node.unions.is_empty() {
            let own = self.new_node(&node.path)?;
            let unions = std::mem::take(&mut node.unions);
            let outer = Node {
                all: vec![own],
                unions,
                ..Node::free(&node.path)
            };
            self.nodes[own] = node;
            self.nodes[id] = outer;
        } else {
            self.nodes[id] = node;
        }
        Ok(())
    }

    /// Under [`Strictness::Shape`], what can't be enforced is left out.
    fn soften<T>(&self, read: Result<T, Fault>) -> Result<Option<T>, SchemaError> {
        match (read, self.strictness) {
            (Ok(value), _) => Ok(Some(value)),
            (Err(Fault::Unenforced(_)), Strictness::Shape) => Ok(None),
            (Err(Fault::Unenforced(error) | Fault::Broken(error)), _) => Err(error),
        }
    }

    fn keyword(&mut self, place: &mut Place, keyword: &str, value: &Value) -> Result<(), Fault> {
        match keyword {
            "type" => place.types(value),
            "const" => {
                place.literal("const", value, 0)?;
                place.add_literals(std::slice::from_ref(value));
                Ok(())
            }
            "enum" => self.listed(place, value),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                place.bound(keyword, value)
            }
            "multipleOf" => place.step(value),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => place.size(keyword, value),
            "pattern" => {
                let pattern = self.pattern(place, keyword, place.text(keyword, value)?)?;
                place.node.string.patterns.insert(pattern);
                Ok(())
            }
            "format" => place.format(value),
            "prefixItems" | "items" | "additionalItems" => self.items(place, keyword, value),
            "properties" | "patternProperties" | "additionalProperties" | "required" => {
                self.members(place, keyword, value)
            }
            "allOf" | "anyOf" | "oneOf" => self.combined(place, keyword, value),
            "$ref" => self.reference(place, value),
            "nullable" => match value {
                Value::Bool(_) => Ok(()),
                _ => Err(place.broken(keyword, "expected a boolean")),
            },
            "uniqueItems" if *value == Value::Bool(false) => Ok(()),
            "$id" | "id" if place.path.is_empty() && value.is_string() => Ok(()),
            "$schema" => place.draft(value),
            _ if ANNOTATIONS.contains(&keyword) || keyword.starts_with("x-") => Ok(()),
            _ => Err(place.unenforced(keyword, "can't be enforced; expected a schema without it")),
        }
    }

    fn listed(&mut self, place: &mut Place, value: &Value) -> Result<(), Fault> {
        let values = value.as_array().filter(|values| !values.is_empty());
        let values = values.ok_or_else(|| place.broken("enum", "expected a list of values"))?;
        self.enum_values += values.len();
        if self.enum_values > self.limits.enum_values_max {
            let problem = format!(
                "more than {} values in all lists, expected fewer",
                self.limits.enum_values_max
            );
            return Err(place.broken("enum", problem));
        }
        for value in values {
            place.literal("enum", value, 0)?;
        }
        place.add_literals(values);
        Ok(())
    }

    fn pattern(&self, place: &Place, keyword: &str, source: &str) -> Result<Pattern, Fault> {
        let most = self.limits.pattern_bytes_max;
        if source.len() > most {
            let problem = format!(
                "a pattern of {} bytes, expected at most {most}",
                source.len()
            );
            return Err(place.broken(keyword, problem));
        }
        Pattern::searched(source).map_err(|problem| place.unenforced(keyword, problem))
    }

    fn children(
        &mut self,
        place: &Place,
        keyword: &str,
        values: &[Value],
    ) -> Result<Vec<NodeId>, Fault> {
        let mut ids = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let path = format!("{}/{keyword}/{index}", place.path);
            ids.push(self.child(value, path, place.depth + 1)?);
        }
        Ok(ids)
    }

    fn items(&mut self, place: &mut Place, keyword: &str, value: &Value) -> Result<(), Fault> {
        let has_old_prefix = place.keywords.get("items").is_some_and(Value::is_array);
        let rest = |reader: &mut Self, place: &Place| {
            reader.child(value, format!("{}/{keyword}", place.path), place.depth + 1)
        };
        match (keyword, value) {
            ("prefixItems", _) if has_old_prefix => {
                return Err(place.broken(keyword, "beside a list as `items`, expected one of them"));
            }
            // Drafts before 2020-12 spell `prefixItems` and `items` this way.
            ("prefixItems" | "items", Value::Array(values)) => {
                place.node.array.prefix = self.children(place, keyword, values)?;
            }
            ("items", _) => place.node.array.items = Some(rest(self, place)?),
            ("additionalItems", _) if has_old_prefix => {
                place.node.array.items = Some(rest(self, place)?);
            }
            ("additionalItems", _) => {
                return Err(place.unenforced(keyword, "expected a list as `items` beside it"));
            }
            _ => return Err(place.broken(keyword, "expected a list of schemas")),
        }
        Ok(())
    }

    fn members(&mut self, place: &mut Place, keyword: &str, value: &Value) -> Result<(), Fault> {
        match (keyword, value) {
            ("additionalProperties", _) => {
                let path = format!("{}/{keyword}", place.path);
                place.node.object.additional = Some(self.child(value, path, place.depth + 1)?);
            }
            ("required", Value::Array(names)) => {
                for name in names {
                    let name = place.text(keyword, name)?.to_string();
                    if !place.node.object.required.contains(&name) {
                        place.node.object.required.push(name);
                    }
                }
            }
            ("properties", Value::Object(members)) => {
                for (name, value) in members {
                    let path = format!("{}/{keyword}/{}", place.path, escaped(name));
                    let node = self.child(value, path, place.depth + 1)?;
                    let object = &mut place.node.object;
                    object.properties.push((name.clone(), node));
                    object.by_name.insert(name.clone(), node);
                }
            }
            ("patternProperties", Value::Object(members)) => {
                for (source, value) in members {
                    let pattern = self.pattern(place, keyword, source)?;
                    let path = format!("{}/{keyword}/{}", place.path, escaped(source));
                    let node = self.child(value, path, place.depth + 1)?;
                    place.node.object.patterns.push((pattern, node));
                }
            }
            ("required", _) => return Err(place.broken(keyword, "expected a list of names")),
            _ => return Err(place.broken(keyword, "expected an object of schemas")),
        }
        Ok(())
    }

    fn combined(&mut self, place: &mut Place, keyword: &str, value: &Value) -> Result<(), Fault> {
        let values = value.as_array().filter(|values| !values.is_empty());
        let values = values.ok_or_else(|| place.broken(keyword, "expected a list of schemas"))?;
        if values.len() > BRANCHES_MAX {
            let problem = format!("{} branches, expected at most {BRANCHES_MAX}", values.len());
            return Err(place.broken(keyword, problem));
        }
        let branches = self.children(place, keyword, values)?;
        match keyword {
            "allOf" => place.node.all.extend(branches),
            "anyOf" => place.node.unions.push(Union {
                keyword: "anyOf",
                branches,
            }),
            _ => place.node.unions.push(Union {
                keyword: "oneOf",
                branches,
            }),
        }
        Ok(())
    }

    fn reference(&mut self, place: &mut Place, value: &Value) -> Result<(), Fault> {
        let target = place.text("$ref", value)?;
        let pointer = target
            .strip_prefix('#')
            .and_then(normal_pointer)
            .ok_or_else(|| {
                let problem =
                    format!("a reference to `{target}`, expected `#` or `#/…` in this schema");
                place.unenforced("$ref", problem)
            })?;
        if self.root.pointer(&pointer).is_none() {
            let problem = format!("`{target}` is not in this schema, expected a place that is");
            return Err(place.unenforced("$ref", problem));
        }
        place.node.all.push(self.place(&pointer)?);
        Ok(())
    }
}
