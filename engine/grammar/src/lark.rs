//! Writes the text of a grammar. It must never let a name, a literal or a schema be read as syntax.

use crate::schema::RawText;
use lockstep_step::TokenId;
use serde_json::Value;
use std::fmt::Write;

/// A grammar in the Lark dialect of `llguidance`, rule by rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lark {
    text: String,
    num_terminals: usize,
    num_documents: usize,
    shared: Vec<&'static str>,
}

impl Lark {
    /// Adds a rule.
    pub(crate) fn rule(&mut self, name: &str, body: &str) {
        let _ = writeln!(self.text, "{name}: {body}");
    }

    /// Adds a rule that several others use, unless it is there.
    pub(crate) fn shared_rule(&mut self, name: &'static str, body: &str) {
        if !self.shared.contains(&name) {
            self.shared.push(name);
            self.rule(name, body);
        }
    }

    /// Adds a terminal and gives its name.
    pub(crate) fn terminal(&mut self, expression: &str) -> String {
        let name = format!("T{}", self.num_terminals);
        self.num_terminals += 1;
        self.rule(&name, expression);
        name
    }

    /// Adds a rule for JSON under a schema and gives its name.
    pub(crate) fn json(&mut self, document: &Value) -> String {
        let name = format!("json_{}", self.num_documents);
        self.num_documents += 1;
        self.rule(&name, &format!("%json {document}"));
        name
    }

    /// Adds what a raw string may be, none of `reserved` in it, followed by `tail` in the same terminal.
    pub(crate) fn raw(&mut self, raw: &RawText, reserved: &[&str], tail: &str) -> String {
        let mut expression = format!("({})", raw.expression);
        for tag in reserved {
            let _ = write!(expression, " & ~/(?s:.*){}(?s:.*)/", escaped(tag));
        }
        match (tail, raw.admits_empty) {
            ("", true) => format!("{}?", self.terminal(&format!("({expression}) & /(?s:.+)/"))),
            ("", false) => self.terminal(&expression),
            (tail, _) => {
                let body = self.terminal(&expression);
                self.terminal(&format!("{body} {}", literal(tail)))
            }
        }
    }

    /// The whole grammar.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// A string literal.
pub(crate) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// One token, by its id.
pub(crate) fn token(token: TokenId) -> String {
    format!("<[{}]>", token.0)
}

/// A regular expression that matches exactly this text of printable ASCII.
fn escaped(text: &str) -> String {
    let mut regex = String::new();
    for c in text.chars() {
        // Only what is special: an escaped `<` would be the start of a word.
        if r"\/.+*?()|[]{}^$".contains(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}
