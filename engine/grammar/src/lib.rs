//! Constraints on what a model may write, as automata over tokens.

#![deny(unsafe_code)]

mod schema;

pub use schema::{
    Parameter, RawText, SchemaError, SchemaLimits, Strictness, ToolParameters, ValueForm,
    checked_document,
};
