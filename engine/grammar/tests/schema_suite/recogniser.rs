//! Asks `llguidance` whether a whole text is in a grammar, byte by byte.

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

/// A compiled grammar that can be asked many times.
pub struct Recogniser {
    matcher: Matcher,
}

impl Recogniser {
    /// Of a JSON document under a schema that the gate has written.
    pub fn of_document(document: &Value) -> Result<Recogniser, String> {
        Recogniser::of_lark(&format!("start: %json {document}"))
    }

    /// Of a Lark grammar.
    pub fn of_lark(text: &str) -> Result<Recogniser, String> {
        let env = ApproximateTokEnv::single_byte_env();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]);
        let mut factory = factory.map_err(|error| error.to_string())?;
        factory.quiet();
        let grammar = TopLevelGrammar::from_lark(text.to_string());
        let parser = factory
            .create_parser(grammar)
            .map_err(|error| format!("{error:#}"))?;
        Ok(Recogniser {
            matcher: Matcher::new(Ok(parser)),
        })
    }

    /// Whether the whole text is in the language.
    pub fn accepts(&self, text: &str) -> bool {
        let mut matcher = self.matcher.deep_clone();
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let taken = matcher.try_consume_tokens(&tokens).unwrap_or(0);
        taken == tokens.len() && (matcher.is_accepting().unwrap_or(false) || matcher.is_stopped())
    }
}

/// A value with a space behind each comma and colon, as templates often write it.
pub fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

impl Recogniser {
    /// Walks so many bytes along its masks, in a fixed manner. Gives what was written, and whether that is
    /// complete or could have been written on.
    pub fn walk(&self, steps: usize, pick: &mut dyn FnMut(usize) -> usize) -> (String, bool) {
        let mut matcher = self.matcher.deep_clone();
        let mut written = Vec::new();
        for _ in 0..steps {
            let Ok(mask) = matcher.compute_mask() else {
                return (String::from_utf8_lossy(&written).into_owned(), false);
            };
            let allowed: Vec<u32> = mask
                .iter()
                .filter(|token| (32..256).contains(token))
                .collect();
            let is_complete = matcher.is_accepting().unwrap_or(false);
            if allowed.is_empty() || (is_complete && pick(4) == 0) {
                return (String::from_utf8_lossy(&written).into_owned(), is_complete);
            }
            // Of all bytes of text, mostly plain ones: else strings would be noise beyond ASCII.
            let plain = allowed
                .iter()
                .copied()
                .filter(|token| *token < 127)
                .collect::<Vec<_>>();
            let from = if plain.is_empty() { &allowed } else { &plain };
            let token = from[pick(from.len())];
            if matcher.consume_token(token).is_err() {
                return (String::from_utf8_lossy(&written).into_owned(), false);
            }
            written.push(token as u8);
            if matcher.is_stopped() {
                break;
            }
        }
        let is_complete = matcher.is_accepting().unwrap_or(false) || matcher.is_stopped();
        (String::from_utf8_lossy(&written).into_owned(), is_complete)
    }
}
