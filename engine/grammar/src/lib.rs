//! Constraints on what a model may write, as automata over tokens.
//!
//! A [`Compiler`] turns a [`Constraint`] (tools and whether they must be called, a JSON schema, a regular
//! expression) into a [`Boundary`], the [`Matcher`](lockstep_step::Matcher) of one output. `boundary`
//! decides where free text ends; `envelope` knows how each format writes a call; `schema` what of a JSON
//! schema can be enforced; `session` is the only one to speak with `llguidance`. Nothing here parses what
//! was written.
//!
//! Every limit is in countable units, and a walk depends on nothing but its grammar and its own tokens: the
//! same constraint and the same tokens give the same mask, on any machine and after any other request.

#![deny(unsafe_code)]

mod answer;
mod boundary;
mod cache;
mod compile;
mod constraint;
mod envelope;
mod lark;
mod nesting;
mod place;
mod plain;
mod program;
mod schema;
mod session;
mod source;
mod spellings;
mod vocabulary;

pub use boundary::Boundary;
pub use cache::CacheStats;
pub use compile::{Compiler, GrammarLimits};
pub use constraint::{Answer, Constraint, ConstraintError, Reasoning, Subject, Tool, ToolChoice};
pub use plain::PlainMatcher;
pub use schema::{
    Parameter, RawText, SchemaError, SchemaLimits, Strictness, ToolParameters, ValueForm,
    checked_document,
};
pub use vocabulary::{GrammarVocabulary, Tokenize, VocabularyParts};
