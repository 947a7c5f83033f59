//! What an output must be that a grammar let through to its end: read by the parser, however it is cut, as calls
//! that fit their schemas. Property tests and fuzzing hold outputs against it.

use crate::outline::Asked;
use crate::toy::text;
use lockstep_grammar::{Boundary, Compiler, Reasoning, ToolChoice};
use lockstep_step::{Matcher, TokenId};
use lockstep_tags::{
    Delivery, Ended, ParserOptions, TagError, TagEvent, TagFormat, TagParser, ToolSet, json,
};
use serde_json::Value;
use std::sync::Arc;

/// A constraint, with what reads its outputs.
pub struct Bench {
    pub asked: Asked,
    tools: Arc<ToolSet>,
    begin: Box<dyn Fn() -> Boundary>,
}

/// What a parser read.
#[derive(Debug, Default, PartialEq)]
pub struct Read {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<(String, String)>,
    num_ended: u32,
}

impl Bench {
    /// None if the constraint can't be held, or holds nothing.
    pub fn new(asked: Asked, compiler: &Arc<Compiler>) -> Option<Bench> {
        let constraint = asked.constraint();
        compiler.matcher(&constraint).ok().flatten()?;
        let schemas: Vec<(String, String)> = asked
            .tools
            .iter()
            .map(|(name, parameters)| ((*name).to_string(), parameters.schema().to_string()))
            .collect();
        let tools = schemas
            .iter()
            .map(|(name, schema)| (name.clone(), Some(schema.as_str())));
        let compiler = compiler.clone();
        Some(Bench {
            tools: Arc::new(ToolSet::new(tools).expect("tools with schemas")),
            begin: Box::new(move || {
                let boundary = compiler.matcher(&constraint).expect("it was compiled");
                boundary.expect("it holds something")
            }),
            asked,
        })
    }

    /// The matcher of one output.
    pub fn begin(&self) -> Boundary {
        (self.begin)()
    }

    /// Whether an output of these tokens is let through to its end.
    pub fn admits(&self, tokens: &[TokenId]) -> bool {
        let mut boundary = (self.begin)();
        tokens.iter().all(|&token| boundary.consume(token).is_ok()) && boundary.can_finish()
    }

    /// Reads an output: whole, or in pieces of so many bytes, as near as characters allow.
    pub fn read(
        &self,
        said: &str,
        delivery: Delivery,
        piece_len: &mut dyn FnMut() -> usize,
    ) -> Result<Read, TagError> {
        let mut parser = TagParser::new(ParserOptions {
            format: self.asked.format,
            starts_in_reasoning: self.asked.reasoning == Reasoning::Open,
            reasoning: self.asked.reasoning != Reasoning::Off,
            delivery,
            tools: self.tools.clone(),
        });
        let mut events = Vec::new();
        let mut rest = said;
        while !rest.is_empty() {
            let mut len = match delivery {
                Delivery::Whole => rest.len(),
                Delivery::Eager => piece_len().max(1),
            };
            while !rest.is_char_boundary(len.min(rest.len())) {
                len += 1;
            }
            let (piece, after) = rest.split_at(len.min(rest.len()));
            parser.push(piece, &mut events)?;
            rest = after;
        }
        let finished = parser.finish(Ended::Eos, &mut events)?;
        let mut read = Read::default();
        for event in events {
            match event {
                TagEvent::Reasoning(text) => read.reasoning.push_str(&text),
                TagEvent::Content(text) => read.content.push_str(&text),
                TagEvent::CallBegin { index, name } => {
                    assert_eq!(index as usize, read.calls.len());
                    read.calls.push((name, String::new()));
                }
                TagEvent::CallArguments { index, fragment } => {
                    read.calls[index as usize].1.push_str(&fragment);
                }
                TagEvent::CallEnd { .. } => read.num_ended += 1,
            }
        }
        assert_eq!(finished.num_calls, read.num_ended);
        assert_eq!(finished.dropped_call, None);
        Ok(read)
    }

    /// Reads an output that was let through, and checks all that it must be.
    pub fn check(&self, tokens: &[TokenId], piece_len: &mut dyn FnMut() -> usize) -> Read {
        let said = told(tokens);
        let asked = &self.asked;
        let [whole, eager] = [Delivery::Whole, Delivery::Eager].map(|delivery| {
            self.read(&said, delivery, piece_len)
                .unwrap_or_else(|error| panic!("{said:?} as {delivery:?}: {error:?}\n{asked:?}"))
        });
        assert_eq!(whole, eager, "{said:?}");
        let num_opened = tokens
            .iter()
            .filter(|token| text(**token) == b"<tool_call>")
            .count();
        assert_eq!(whole.calls.len(), num_opened, "{said:?}\n{asked:?}");
        assert_eq!(whole.num_ended as usize, num_opened, "{said:?}\n{asked:?}");
        for (name, arguments) in &whole.calls {
            let tool = asked.tools.iter().find(|(tool, _)| tool == name);
            let (_, parameters) = tool.unwrap_or_else(|| panic!("{name:?} in {said:?}"));
            let value = json::parse(arguments, 64).map(plain);
            let value = value.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
            assert!(parameters.admits(&value), "{value} in {said:?}\n{asked:?}");
            if let ToolChoice::Named(chosen) = &asked.choice {
                assert_eq!(chosen, name);
            }
        }
        match asked.choice {
            ToolChoice::Forbidden => assert_eq!(num_opened, 0, "{said:?}"),
            ToolChoice::Required | ToolChoice::Named(_) => {
                assert!(num_opened > 0, "{said:?}");
                assert_eq!(whole.content.trim(), "", "{said:?}");
            }
            ToolChoice::Auto => {}
        }
        assert!(asked.parallel || num_opened < 2, "{said:?}");
        let opens = |text: &str| {
            text.contains("<tool_call>")
                || (asked.format == TagFormat::QwenXml && text.contains("<function="))
        };
        assert!(
            !opens(&whole.content) && !opens(&whole.reasoning),
            "{said:?}"
        );
        if let Some(answer) = &asked.answer
            && num_opened == 0
        {
            let value = json::parse(&whole.content, 64).map(plain);
            let value = value.unwrap_or_else(|error| panic!("{said:?}: {error}"));
            assert!(answer.admits(&value), "{value} in {said:?}\n{asked:?}");
        }
        whole
    }
}

/// The text of tokens, as a person reads it.
pub fn told(tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| text(token)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The same value with numbers as doubles, as near as those come.
fn plain(value: json::Value) -> Value {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(value) => value.into(),
        json::Value::Number(text) => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => whole.into(),
            (_, Ok(number)) if number.is_finite() => number.into(),
            _ => 1e300.into(),
        },
        json::Value::String(text) => text.into(),
        json::Value::Array(items) => items.into_iter().map(plain).collect(),
        json::Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| (key, plain(value)));
            Value::Object(members.collect())
        }
    }
}
