//! What a request asks of its answer, and why that can be impossible. No word of any API is here.

use crate::{SchemaError, Strictness};
use lockstep_tags::TagFormat;
use serde_json::Value;
use std::fmt;

/// What an answer may look like.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// How the model writes calls.
    pub format: TagFormat,
    /// Whether think tags mean anything, and where the answer starts.
    pub reasoning: Reasoning,
    /// The tools that are offered, with names of their own.
    pub tools: Vec<Tool>,
    /// Whether they may or must be called.
    pub choice: ToolChoice,
    /// Whether more than one call may be made.
    pub parallel: bool,
    /// What may stand in the answer itself.
    pub answer: Answer,
}

/// Where the answer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Think tags mean nothing.
    Off,
    /// The prompt left reasoning open.
    Open,
    /// The prompt didn't, but the model may open reasoning itself.
    Closed,
}

/// A tool that is offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Option<Value>,
    /// How much of the schema must hold.
    pub strictness: Strictness,
}

/// Whether tools are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// Never, and nothing that reads as a call is written.
    Forbidden,
    /// If the model wants to.
    Auto,
    /// At least once.
    Required,
    /// This one, at least once.
    Named(String),
}

/// What may stand in an answer beside calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Any text.
    Free,
    /// A JSON object.
    JsonObject,
    /// JSON under a schema.
    JsonSchema(Value),
    /// Text that a regular expression matches as a whole.
    Regex(String),
    /// One of these.
    Choice(Vec<String>),
    /// Text of a Lark grammar.
    Lark(String),
}

/// Which part of a constraint can't be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The tool of this index.
    Tool(usize),
    /// The choice of a tool.
    ToolChoice,
    /// The constraint on the answer itself.
    Answer,
    /// The model, which lacks what such constraints need.
    Model,
}

/// Why a constraint can't be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintError {
    /// Which part of it.
    pub subject: Subject,
    /// Where in a schema, if it is about one: a JSON pointer.
    pub path: Option<String>,
    /// A stable name.
    pub kind: &'static str,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl ConstraintError {
    pub(crate) fn new(subject: Subject, kind: &'static str, message: impl Into<String>) -> Self {
        ConstraintError {
            subject,
            path: None,
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn schema(subject: Subject, error: SchemaError) -> Self {
        ConstraintError {
            message: error.to_string(),
            path: Some(error.path),
            ..ConstraintError::new(subject, "unsupported_schema", "")
        }
    }
}

impl fmt::Display for ConstraintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConstraintError {}
