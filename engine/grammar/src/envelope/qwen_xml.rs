//! A call of Qwen's XML-like format, in the layout of its template. Only the outer tags are tokens; those
//! of functions and parameters are text.

use super::{ANY_TEXT, DeclaredTool, Envelope, checked_json, checked_name};
use crate::lark::{Lark, literal, token};
use crate::{RawText, SchemaError, ValueForm};
use serde_json::Value;

/// Ends a value. The grammar itself writes it after a line feed, and JSON never has one before it.
pub(super) const RESERVED: [&str; 1] = ["</parameter>"];

/// What a raw string may not contain: the end of the value, and what would be read as the next one.
const RESERVED_IN_TEXT: [&str; 2] = ["</parameter>", "<parameter="];

const VALUE_END: &str = "\n</parameter>\n";

/// A string without any bound, with the end of the value: cut at each `<`, so that its terminals are plain
/// enough for the masks of most places to be known in advance.
fn any_value(lark: &mut Lark) -> String {
    let end = literal(VALUE_END.trim_start());
    let start = format!("(TEXT_LINE | TEXT? TAIL* TAIL_LINE) {end}");
    lark.shared_rule("any_value", &start);
    lark.shared_rule("TEXT", "/[^<]+/");
    lark.shared_rule("TEXT_LINE", r"/[^<]*\n/");
    lark.shared_rule("TAIL", r"/<[^<]*/ & ~/<(\/parameter>|parameter=)[^<]*/");
    lark.shared_rule("TAIL_LINE", r"TAIL & /(?s:.*)\n/");
    "any_value".to_string()
}

pub(super) fn call(
    envelope: &Envelope,
    tool_idx: usize,
    tool: &DeclaredTool,
    lark: &mut Lark,
) -> Result<String, SchemaError> {
    let name = checked_name(&tool.name, "name", &['<', '>'])?;
    let mut body = literal(&format!("\n<function={name}>\n"));
    let parameters = tool.parameters.parameters.as_ref();
    for (idx, parameter) in parameters.map_err(Clone::clone)?.iter().enumerate() {
        let key = checked_name(&parameter.name, "properties", &['<', '>'])?;
        let mut forms = Vec::new();
        for form in &parameter.forms {
            forms.push(match form {
                ValueForm::Json(document) => {
                    let document = checked_json(document, key, &RESERVED)?;
                    format!("{} {}", lark.json(document), literal(VALUE_END))
                }
                ValueForm::Raw(raw) if raw.expression == ANY_TEXT => any_value(lark),
                ValueForm::Raw(raw) => {
                    let raw = apart_from_json(raw, &parameter.forms);
                    lark.raw(&raw, &RESERVED_IN_TEXT, VALUE_END)
                }
            });
        }
        let rule = format!("argument_{tool_idx}_{idx}");
        let open = literal(&format!("<parameter={key}>\n"));
        lark.rule(&rule, &format!("{open} ({})", forms.join(" | ")));
        body.push_str(&format!(
            " {rule}{}",
            if parameter.required { "" } else { "?" }
        ));
    }
    Ok(format!(
        "{body} {} {}",
        literal("</function>\n"),
        token(envelope.close)
    ))
}

/// The text without that whose first line is a scalar that the value may be as well. A text goes on behind a
/// line feed, so otherwise what looks like the end of a scalar would be taken for more of a text.
fn apart_from_json(raw: &RawText, forms: &[ValueForm]) -> RawText {
    let mut scalars = Vec::new();
    for form in forms {
        if let ValueForm::Json(document) = form {
            add_scalars(document, &mut scalars);
        }
    }
    if scalars.is_empty() {
        return raw.clone();
    }
    scalars.sort_unstable();
    scalars.dedup();
    let line = format!("/({})\\n(?s:.*)/", scalars.join("|"));
    RawText {
        expression: format!("({}) & ~{line}", raw.expression),
        admits_empty: raw.admits_empty,
    }
}

const NULL: &str = "null";
const BOOLEAN: &str = "true|false";
const NUMBER: &str = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?";

/// The scalars, strings aside, that a document admits; all of them where it doesn't say.
fn add_scalars(document: &Value, out: &mut Vec<&'static str>) {
    if let Some(branches) = document["anyOf"].as_array() {
        branches.iter().for_each(|branch| add_scalars(branch, out));
        return;
    }
    let listed = document["enum"].as_array().map(Vec::as_slice);
    let listed = listed.or(document.get("const").map(std::slice::from_ref));
    for value in listed.unwrap_or_default() {
        match value {
            Value::Null => out.push(NULL),
            Value::Bool(_) => out.push(BOOLEAN),
            Value::Number(_) => out.push(NUMBER),
            Value::String(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
    match document["type"].as_str() {
        Some("null") => out.push(NULL),
        Some("boolean") => out.push(BOOLEAN),
        Some("integer" | "number") => out.push(NUMBER),
        Some(_) => {}
        None if listed.is_some() => {}
        None => out.extend([NULL, BOOLEAN, NUMBER]),
    }
}
