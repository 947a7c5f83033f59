//! Reads what a model wrote: reasoning, content and tool calls, while the text streams in.
//!
//! One file per tag format ([`TagFormat`]), behind one interface (`call`) and over rules they
//! share: the channels and openers (`channels`), tags in a stream (`lexer`), code fences (`fence`),
//! values typed by a tool's schema (`schema`, `types`, `arguments`), strict JSON (`json`), calls in
//! XML-like tags (`xml_invoke`, `xml_section`) and with a JSON body (`json_scanner`,
//! `json_section`). The crate knows no grammar, no tokens and no server, and never repairs a call:
//! what cannot be read is an error that says where.
//!
//! ```
//! use lockstep_tags::{Delivery, Ended, ParserOptions, TagEvent, TagFormat, TagParser, ToolSet};
//!
//! let schema = r#"{"type":"object","properties":{"seats":{"type":"integer"}}}"#;
//! let tools = ToolSet::new([("book".to_string(), Some(schema))]).unwrap();
//! let mut parser = TagParser::new(ParserOptions {
//!     format: TagFormat::Glm,
//!     starts_in_reasoning: true,
//!     reasoning: true,
//!     delivery: Delivery::Whole,
//!     tools: tools.into(),
//! });
//! let mut events = Vec::new();
//! parser.push("Four.</think><tool_call>book<arg_key>seats</arg", &mut events).unwrap();
//! parser.push("_key><arg_value>4</arg_value></tool_call>", &mut events).unwrap();
//! assert_eq!(parser.finish(Ended::Eos, &mut events).unwrap().num_calls, 1);
//! assert_eq!(events[0], TagEvent::Reasoning("Four.".into()));
//! assert_eq!(events[2], TagEvent::CallArguments { index: 0, fragment: r#"{"seats":4}"#.into() });
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arguments;
mod call;
mod call_writer;
pub mod cases;
mod channels;
mod deepseek_dsml;
mod deepseek_v3;
mod deepseek_v31;
mod event;
mod fence;
mod format;
mod glm;
mod harmony;
mod harmony_header;
mod hermes_json;
pub mod json;
mod json_arguments;
mod json_scanner;
mod json_section;
mod kimi_k2;
mod lexer;
mod markup;
mod minimax_m2;
#[cfg(planted)]
mod misdeeds;
mod opening;
#[cfg(test)]
mod outcome;
mod parser;
mod python;
mod qwen_xml;
mod schema;
mod trail;
mod types;
mod xml_invoke;
mod xml_section;
mod xml_values;

pub use channels::THINK_TAGS;
pub use event::{Delivery, Ended, Finished, TagError, TagErrorKind, TagEvent};
pub use fence::Fence;
pub use format::{TagFormat, UnknownFormat};
pub use parser::{CALL_BYTES_MAX, ParserOptions, TagParser, starts_in_reasoning};
pub use schema::{
    SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX, SchemaError, TOOLS_MAX, ToolSet,
};
