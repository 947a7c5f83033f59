//! A call of Qwen's XML-like format, in the layout of its template. Only the outer tags are tokens; those
//! of functions and parameters are text.

use super::{ANY_TEXT, DeclaredTool, Envelope, checked_name};
use crate::lark::{Lark, literal, token};
use crate::{SchemaError, ValueForm};

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
                    format!("{} {}", lark.json(document), literal(VALUE_END))
                }
                ValueForm::Raw(raw) if raw.expression == ANY_TEXT => any_value(lark),
                ValueForm::Raw(raw) => lark.raw(raw, &RESERVED_IN_TEXT, VALUE_END),
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
