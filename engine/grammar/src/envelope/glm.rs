//! A call of GLM: the name, then each argument between tags that are tokens of their own. Both layouts of
//! its templates are in the grammar: with a line feed between tags, and without.

use super::{ANY_TEXT, DeclaredTool, Envelope, checked_json, checked_name};
use crate::lark::{Lark, literal, token};
use crate::{SchemaError, ValueForm};

/// Tags that are tokens: of a key, and of a value.
pub(super) const TAGS: [&str; 4] = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];

/// The first ends a value, the second would be read as the start of the next argument.
pub(super) const RESERVED: [&str; 2] = ["</arg_value>", "<arg_key>"];

pub(super) fn call(
    envelope: &Envelope,
    tool_idx: usize,
    tool: &DeclaredTool,
    lark: &mut Lark,
) -> Result<String, SchemaError> {
    let name = checked_name(&tool.name, "name", &['<', '>'])?;
    let mut body = format!("{} \"\\n\"?", literal(name));
    let parameters = tool.parameters.parameters.as_ref();
    for (idx, parameter) in parameters.map_err(Clone::clone)?.iter().enumerate() {
        let key = checked_name(&parameter.name, "properties", &['<'])?;
        let mut forms = Vec::new();
        for form in &parameter.forms {
            forms.push(match form {
                ValueForm::Json(document) => lark.json(checked_json(document, key, &RESERVED)?),
                // The boundary's look-alike masks keep the tags out of it: the terminal stays so plain that
                // the masks of most places are known in advance.
                ValueForm::Raw(raw) if raw.expression == ANY_TEXT => {
                    lark.shared_rule("TEXT", "/(?s:.+)/");
                    "TEXT?".to_string()
                }
                ValueForm::Raw(raw) => lark.raw(raw, &RESERVED, ""),
            });
        }
        let rule = format!("argument_{tool_idx}_{idx}");
        let [key_open, key_close, value_open, value_close] =
            [0, 1, 2, 3].map(|tag| token(envelope.inner[tag]));
        let text = format!(
            "{key_open} {} {key_close} \"\\n\"? {value_open} ({}) {value_close} \"\\n\"?",
            literal(key),
            forms.join(" | "),
        );
        lark.rule(&rule, &text);
        body.push_str(&format!(
            " {rule}{}",
            if parameter.required { "" } else { "?" }
        ));
    }
    Ok(format!("{body} {}", token(envelope.close)))
}
