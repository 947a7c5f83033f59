//! Answers of OpenAI's chat API, whole and streamed. It must never fill in what the server left out.

use super::{Call, Finish, Invalid, InvalidKind, Reply, beginning, refusal, shape};
use serde_json::Value;

fn finish(name: &str) -> Finish {
    match name {
        "stop" => Finish::Stop,
        "length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::Calls,
        other => Finish::Other(other.to_owned()),
    }
}

/// The text of a content: a string, null, or text parts.
fn text(content: &Value) -> Result<String, Invalid> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| part["text"].as_str())
            .collect::<Option<Vec<&str>>>()
            .map(|parts| parts.concat())
            .ok_or_else(|| shape("content has a part without text")),
        _ => Err(shape("content is neither text nor null")),
    }
}

/// Reasoning goes by two names, of which a server may use both for the same.
fn reasoning(message: &Value) -> &str {
    let named = |name: &str| message[name].as_str().filter(|text| !text.is_empty());
    let found = named("reasoning_content").or_else(|| named("reasoning"));
    found.unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], Invalid> {
    match &value[name] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(shape(format!("{name} is no list"))),
    }
}

fn named(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Reads a whole answer.
pub fn whole(json: &Value) -> Result<Reply, Invalid> {
    let choice = json["choices"].get(0);
    let choice = choice.ok_or_else(|| shape("the answer has no choices"))?;
    let message = choice.get("message").filter(|message| message.is_object());
    let message = message.ok_or_else(|| shape("the choice has no message"))?;
    let name = choice["finish_reason"].as_str();
    let name = name.ok_or_else(|| shape("the choice has no finish_reason"))?;
    let calls = list(message, "tool_calls")?.iter().map(|call| Call {
        id: named(&call["id"]),
        name: named(&call["function"]["name"]),
        arguments: named(&call["function"]["arguments"]),
    });
    Ok(Reply {
        content: text(&message["content"])?,
        reasoning: reasoning(message).to_owned(),
        calls: calls.collect(),
        finish: finish(name),
        refused: None,
    })
}

/// Reads the events of a stream.
pub fn stream(events: &[String]) -> Result<Reply, Invalid> {
    let broken = |what: &str| {
        Err(Invalid {
            kind: InvalidKind::BrokenStream,
            what: what.to_owned(),
        })
    };
    let mut reply = Reply {
        content: String::new(),
        reasoning: String::new(),
        calls: Vec::new(),
        finish: Finish::Stop,
        refused: None,
    };
    let mut found = None;
    let mut indices = Vec::new();
    for data in events {
        if data == "[DONE]" {
            let Some(finish) = found else {
                return broken("it has no finish_reason");
            };
            reply.finish = finish;
            return Ok(reply);
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|_| shape(format!("an event is no JSON: {}", beginning(data))))?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let refused = refusal(error, "")?;
            return Ok(Reply {
                refused: refused.refused,
                finish: refused.finish,
                ..reply
            });
        }
        if !chunk["choices"].is_array() {
            return Err(shape(format!(
                "an event has no choices: {}",
                beginning(data)
            )));
        }
        let Some(choice) = chunk["choices"].get(0) else {
            continue;
        };
        let delta = &choice["delta"];
        reply.content += &text(&delta["content"])?;
        reply.reasoning += reasoning(delta);
        for part in list(delta, "tool_calls")? {
            take(&mut reply.calls, &mut indices, part);
        }
        if let Some(name) = choice["finish_reason"].as_str() {
            found = Some(finish(name));
        }
    }
    broken("it ends without [DONE]")
}

/// Adds a part of a call. The index says which; without one, an id begins another.
fn take(calls: &mut Vec<Call>, indices: &mut Vec<Option<u64>>, part: &Value) {
    let index = part["index"].as_u64();
    let known = match index {
        Some(_) => indices.iter().position(|known| *known == index),
        None if part["id"].is_string() => None,
        None => calls.len().checked_sub(1),
    };
    let at = known.unwrap_or_else(|| {
        calls.push(Call::default());
        indices.push(index);
        calls.len() - 1
    });
    let call = &mut calls[at];
    let function = &part["function"];
    call.id = call.id.take().or_else(|| named(&part["id"]));
    call.name = call.name.take().or_else(|| named(&function["name"]));
    if let Some(fragment) = function["arguments"].as_str() {
        call.arguments.get_or_insert_default().push_str(fragment);
    }
}
