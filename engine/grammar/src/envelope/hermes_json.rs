//! A call of the Hermes format: one JSON object with the name and the arguments, as its templates print it.

use super::{DeclaredTool, Envelope};
use crate::lark::{Lark, literal, token};
use serde_json::Value;

pub(super) fn call(
    envelope: &Envelope,
    _tool_idx: usize,
    tool: &DeclaredTool,
    lark: &mut Lark,
) -> String {
    let name = Value::from(tool.name.as_str());
    let open = format!("\n{{\"name\": {name}, \"arguments\": ");
    let arguments = lark.json(&tool.parameters.document);
    let close = token(envelope.close);
    format!("{} {arguments} {} {close}", literal(&open), literal("}\n"))
}
