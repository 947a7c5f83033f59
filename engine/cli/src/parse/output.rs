//! One raw output from standard input, and what it says. It must never hide a part of it: what is
//! neither said nor a call is named.

use super::{ParseArgs, Verdict};
use crate::{exit::Failure, tools};
use lockstep_tags::cases::{Reading, fold};
use lockstep_tags::{
    Delivery, Ended, Finished, ParserOptions, TagError, TagFormat, TagParser, ToolSet,
    starts_in_reasoning,
};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};

/// Reads standard input to its end and says what is in it.
pub(super) fn run(args: &ParseArgs) -> Result<Verdict, Failure> {
    let format = super::format(args.format.as_deref().unwrap_or_default())?;
    let tools = match &args.tools {
        Some(path) => tools::read(path)?.1,
        None => ToolSet::default(),
    };
    let mut input = std::io::stdin();
    if input.is_terminal() {
        eprintln!("Reading the output of a model from the terminal; Ctrl-D ends it.");
    }
    if tools.is_empty() && format != TagFormat::Plain && !args.json {
        eprintln!("No tools are offered, so call tags are text; --tools FILE offers some.");
    }
    let mut bytes = Vec::new();
    input
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::input(format!("standard input: {error}"), ""))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let next = "decode the model's tokens to text first";
        Failure::input(format!("standard input is no UTF-8 at byte {at}"), next)
    })?;
    let outcome = read(format, tools, args, &text);
    Ok(Verdict {
        text: match args.json {
            true => outcome.to_json().to_string(),
            false => outcome.to_text(),
        },
        is_good: outcome.result.is_ok(),
    })
}

/// What one output was read as.
struct Outcome {
    reading: Reading,
    result: Result<Finished, TagError>,
}

fn read(format: TagFormat, tools: ToolSet, args: &ParseArgs, text: &str) -> Outcome {
    let ended: Ended = args.ended.into();
    let mut parser = TagParser::new(ParserOptions {
        format,
        starts_in_reasoning: starts_in_reasoning(&args.prompt_tail),
        reasoning: true,
        delivery: Delivery::Whole,
        tools: tools.into(),
    });
    let mut events = Vec::new();
    let pushed = parser.push(text, &mut events);
    let result = pushed.and_then(|()| parser.finish(ended, &mut events));
    let kind = result.as_ref().err().map(|error| error.kind);
    Outcome {
        reading: fold(&events, ended, kind),
        result,
    }
}

impl Outcome {
    fn to_text(&self) -> String {
        let mut reading = self.reading.clone();
        reading.error = None;
        let mut text = reading.to_string();
        let quoted = |text: &str| Value::from(text).to_string();
        match &self.result {
            Err(error) => {
                text += &format!("\nerror:     {error}\nmarkup:    {}", quoted(&error.markup));
            }
            Ok(Finished {
                dropped_call: Some(markup),
                ..
            }) => text += &format!("\ncut off:   {}", quoted(markup)),
            Ok(_) => {}
        }
        text
    }

    fn to_json(&self) -> Value {
        let reading = &self.reading;
        let call = |(name, arguments): &(String, lockstep_tags::json::Value)| {
            // Numbers keep their digits: the text is JSON already.
            json!({"name": name, "arguments": arguments.to_string()})
        };
        let (error, dropped) = match &self.result {
            Err(error) => (
                json!({
                    "kind": error.kind.as_str(),
                    "offset": error.offset,
                    "expected": error.expected,
                    "markup": error.markup,
                }),
                None,
            ),
            Ok(finished) => (Value::Null, finished.dropped_call.clone()),
        };
        json!({
            "reasoning": reading.reasoning,
            "content": reading.content,
            "tool_calls": reading.tool_calls.iter().map(call).collect::<Vec<_>>(),
            "finish": reading.finish,
            "error": error,
            "dropped_call": dropped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::EndedKind;
    use super::*;

    fn outcome(format: TagFormat, text: &str, ended: EndedKind) -> Outcome {
        let args = ParseArgs {
            cases: None,
            format: None,
            tools: None,
            prompt_tail: "<think>".into(),
            ended,
            json: false,
        };
        let tools = ToolSet::new([("go".to_owned(), None)]).expect("a tool");
        read(format, tools, &args, text)
    }

    #[test]
    fn an_output_is_shown_line_by_line() {
        let text = "Hm.</think>On it.\n<tool_call>go<arg_key>a</arg_key><arg_value>9007199254740993\
                    </arg_value></tool_call>";
        let outcome = outcome(TagFormat::Glm, text, EndedKind::Eos);
        assert_eq!(
            outcome.to_text(),
            "reasoning: \"Hm.\"\ncontent:   \"On it.\"\ncall:      go {\"a\":9007199254740993}\n\
             finish:    tool_calls"
        );
        assert_eq!(
            outcome.to_json(),
            json!({
                "reasoning": "Hm.",
                "content": "On it.",
                "tool_calls": [{"name": "go", "arguments": "{\"a\":9007199254740993}"}],
                "finish": "tool_calls",
                "error": null,
                "dropped_call": null,
            })
        );
    }

    #[test]
    fn what_is_no_call_is_named() {
        let text = "<tool_call>\n{\"name\": \"go\", \"arguments\": [";
        let wrong = outcome(TagFormat::HermesJson, text, EndedKind::Eos);
        assert_eq!(
            wrong.to_text(),
            "reasoning: null\ncontent:   null\nfinish:    error\n\
             error:     unterminated_tool_call at byte 41: expected `</tool_call>` before the end \
             of the output\n\
             markup:    \"<tool_call>\\n{\\\"name\\\": \\\"go\\\", \\\"arguments\\\": [\""
        );
        assert_eq!(wrong.to_json()["error"]["offset"], 41);
        let cut = outcome(TagFormat::HermesJson, text, EndedKind::Length);
        let last = cut.to_text().lines().last().map(str::to_owned);
        assert!(last.is_some_and(|line| line.starts_with("cut off:   \"<tool_call>")));
        assert_eq!(cut.to_json()["dropped_call"], text);
    }
}
