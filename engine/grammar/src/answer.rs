//! The grammar of an answer that is held to JSON, a regular expression, a choice, or a grammar of its own.

use crate::checked_document;
use crate::compile::GrammarLimits;
use crate::constraint::{Answer, ConstraintError, Subject};
use crate::lark::{Lark, literal};
use serde_json::json;

/// The grammar's text; None for an answer that may be anything.
///
/// # Errors
/// If the answer can't be held to it.
pub(crate) fn grammar(
    answer: &Answer,
    limits: &GrammarLimits,
) -> Result<Option<String>, ConstraintError> {
    let mut lark = Lark::default();
    match answer {
        Answer::Free => return Ok(None),
        Answer::JsonObject | Answer::JsonSchema(_) => {
            let any = json!({"type": "object"});
            let schema = match answer {
                Answer::JsonSchema(schema) => schema,
                _ => &any,
            };
            let document = checked_document(schema, &limits.schema)
                .map_err(|error| ConstraintError::schema(Subject::Answer, error))?;
            lark.rule("start", &format!("%json {document}"));
        }
        Answer::Regex(regex) => {
            if regex.len() > limits.regex_bytes_max {
                return too_large("a regex in bytes", regex.len(), limits.regex_bytes_max);
            }
            // Escaped, so that no character of it can end it.
            lark.rule("start", "T");
            lark.rule("T", &format!("/{}/", slashes_escaped(regex)));
        }
        Answer::Choice(choices) => {
            check_choices(choices, limits)?;
            let choices: Vec<String> = choices.iter().map(|choice| literal(choice)).collect();
            lark.rule("start", &choices.join(" | "));
        }
        Answer::Lark(text) => {
            if text.len() > limits.lark_bytes_max {
                return too_large("a grammar in bytes", text.len(), limits.lark_bytes_max);
            }
            let num_colons = text.bytes().filter(|byte| *byte == b':').count();
            if num_colons > limits.lark_rules_max {
                return too_large("a number of rules", num_colons, limits.lark_rules_max);
            }
            refuse_foreign(text)?;
            return Ok(Some(text.clone()));
        }
    }
    Ok(Some(lark.into_text()))
}

fn check_choices(choices: &[String], limits: &GrammarLimits) -> Result<(), ConstraintError> {
    let empty = |message: &str| {
        let subject = Subject::Answer;
        Err(ConstraintError::new(subject, "empty_choice", message))
    };
    if choices.is_empty() {
        return empty("there are no choices, expected at least one");
    }
    if choices.len() > limits.choices_max {
        return too_large("a number of choices", choices.len(), limits.choices_max);
    }
    for choice in choices {
        if choice.is_empty() {
            return empty("a choice is empty, expected at least one character");
        }
        if choice.len() > limits.regex_bytes_max {
            return too_large("a choice in bytes", choice.len(), limits.regex_bytes_max);
        }
    }
    Ok(())
}

fn too_large<T>(what: &str, is: usize, max: usize) -> Result<T, ConstraintError> {
    let message = format!("{what} of {is}, expected at most {max}");
    let subject = Subject::Answer;
    Err(ConstraintError::new(subject, "grammar_too_large", message))
}

/// A `/` would end the regex, where it is not escaped already.
fn slashes_escaped(regex: &str) -> String {
    let mut text = String::new();
    let mut escaped = false;
    for c in regex.chars() {
        match c {
            '/' if !escaped => text.push_str("\\/"),
            '\n' => text.push_str(if escaped { "n" } else { "\\n" }),
            c => text.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    text
}

/// Directives that would bring in schemas past the reader of schemas, change how tokens are drawn, or take
/// text back that is already written.
const FOREIGN: [&str; 12] = [
    "%json",
    "%llguidance",
    "%import",
    "%regex",
    "%lark",
    "%declare",
    "%override",
    "temperature=",
    "max_tokens=",
    "stop=",
    "suffix=",
    "stop_capture=",
];

fn refuse_foreign(text: &str) -> Result<(), ConstraintError> {
    let foreign = FOREIGN.into_iter().find(|word| text.contains(word));
    let token = names_token(text).then_some("a token by its name or number");
    let Some(found) = foreign.or(token) else {
        return Ok(());
    };
    let message = format!("the grammar uses {found}, which this server doesn't have");
    Err(ConstraintError::new(
        Subject::Answer,
        "unsupported_grammar",
        message,
    ))
}

/// Whether a `<` stands outside of strings, regular expressions and comments, where it begins a token of the
/// model. Texts are all that a grammar of a client may be about.
fn names_token(lark: &str) -> bool {
    let mut rest = lark.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '<' => return true,
            '#' => drop(rest.find(|c| *c == '\n')),
            '/' if rest.peek() == Some(&'/') => drop(rest.find(|c| *c == '\n')),
            '"' | '/' => {
                while let Some(inside) = rest.next().filter(|inside| *inside != c) {
                    if inside == '\\' {
                        rest.next();
                    }
                }
            }
            _ => {}
        }
    }
    false
}
