//! What order a stream's events may have, one automaton per API. Tests and the simulation hold every
//! stream against these; the encoders must never call them.

use serde_json::Value;

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEvent {
    /// The name, where the API names its events.
    pub name: Option<String>,
    /// The data: JSON, or the terminator of OpenAI's streams.
    pub data: StreamData,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamData {
    /// JSON.
    Json(Value),
    /// `[DONE]`.
    Done,
}

/// Cuts a stream into events; comments are left out.
///
/// # Errors
/// If the bytes are no server-sent events, or end inside one.
pub fn events(bytes: &[u8]) -> Result<Vec<StreamEvent>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    let mut events = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some((block, after)) = rest.split_once("\n\n") else {
            return Err(format!("the stream ends inside an event: {rest:?}"));
        };
        rest = after;
        let (mut name, mut data) = (None, None);
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("event", value)) if name.is_none() => name = Some(value.to_string()),
                Some(("data", "[DONE]")) if data.is_none() => data = Some(StreamData::Done),
                Some(("data", value)) if data.is_none() => {
                    let json = serde_json::from_str(value);
                    let json = json.map_err(|error| format!("{value:?} is no JSON: {error}"))?;
                    data = Some(StreamData::Json(json));
                }
                Some(("", _)) => {}
                _ => return Err(format!("unexpected line {line:?}")),
            }
        }
        match (name, data) {
            (name, Some(data)) => events.push(StreamEvent { name, data }),
            (None, None) => {}
            (Some(name), None) => return Err(format!("event {name:?} has no data")),
        }
    }
    Ok(events)
}

/// A choice of an OpenAI stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ChoiceState {
    /// Nothing was said.
    New,
    /// Between its first and its last chunk, with so many calls begun.
    Open { num_calls: u64 },
    /// Its `finish_reason` was said.
    Finished,
}

/// Holds a chat stream of `n` choices against the protocol: for each choice a role, deltas, and one
/// `finish_reason`; an error object right before the chunk that finishes with `error`; then at most
/// one usage chunk; then `[DONE]` and nothing.
///
/// # Errors
/// The first event that is out of order.
pub fn check_chat_stream(bytes: &[u8], n: usize) -> Result<(), String> {
    check_openai(bytes, n, "chat.completion.chunk", chat_delta)
}

/// Holds a completion stream of `n` choices against the protocol.
///
/// # Errors
/// The first event that is out of order.
pub fn check_completion_stream(bytes: &[u8], n: usize) -> Result<(), String> {
    check_openai(bytes, n, "text_completion", |state, choice| {
        match (state, choice["text"].as_str()) {
            (_, None) => Err("no text".to_string()),
            (ChoiceState::New, Some(_)) => Ok(ChoiceState::Open { num_calls: 0 }),
            (state, Some(_)) => Ok(state),
        }
    })
}

fn chat_delta(state: ChoiceState, choice: &Value) -> Result<ChoiceState, String> {
    let delta = choice["delta"].as_object().ok_or("no delta")?;
    let ChoiceState::Open { num_calls } = state else {
        return match delta.get("role") {
            Some(role) if role == "assistant" => Ok(ChoiceState::Open { num_calls: 0 }),
            _ => Err("the first delta has no role".to_string()),
        };
    };
    if delta.contains_key("role") {
        return Err("a second role".to_string());
    }
    let Some(call) = delta.get("tool_calls").map(|calls| &calls[0]) else {
        return Ok(state);
    };
    let index = call["index"].as_u64().ok_or("a call without index")?;
    match (call["id"].is_string(), call["function"]["name"].is_string()) {
        (true, true) if index == num_calls => Ok(ChoiceState::Open {
            num_calls: num_calls + 1,
        }),
        (false, false) if index + 1 == num_calls => Ok(state),
        _ => Err(format!("call {index} after {num_calls} calls had begun")),
    }
}

// Long on purpose: one event after the other, as they may come.
fn check_openai(
    bytes: &[u8],
    n: usize,
    object: &str,
    step: impl Fn(ChoiceState, &Value) -> Result<ChoiceState, String>,
) -> Result<(), String> {
    let mut states = vec![ChoiceState::New; n];
    let (mut failed, mut usage, mut done) = (false, false, false);
    for (idx, event) in events(bytes)?.into_iter().enumerate() {
        let wrong = |what: String| Err(format!("event {idx}: {what}: {event:?}"));
        if done {
            return wrong("after [DONE]".to_string());
        }
        if event.name.is_some() {
            return wrong("a name".to_string());
        }
        let json = match &event.data {
            StreamData::Json(json) => json,
            StreamData::Done if failed => return wrong("after an error".to_string()),
            StreamData::Done => {
                done = true;
                continue;
            }
        };
        if json.get("error").is_some() {
            if failed {
                return wrong("an error after an error".to_string());
            }
            failed = true;
            continue;
        }
        if json["object"] != object {
            return wrong(format!("expected an object {object}"));
        }
        let choices = json["choices"].as_array().map_or(&[][..], Vec::as_slice);
        let [choice] = choices else {
            let over = states.iter().all(|state| *state == ChoiceState::Finished);
            if !over || usage || failed || !choices.is_empty() || !json["usage"].is_object() {
                return wrong("no choice, and no place for usage".to_string());
            }
            usage = true;
            continue;
        };
        let number = choice["index"].as_u64().unwrap_or(u64::MAX) as usize;
        let Some(state) = states.get_mut(number).filter(|_| !usage) else {
            return wrong("no such choice, or after usage".to_string());
        };
        if *state == ChoiceState::Finished {
            return wrong("after the choice's finish".to_string());
        }
        *state = match step(*state, choice) {
            Ok(state) => state,
            Err(what) => return wrong(what),
        };
        match choice["finish_reason"].as_str() {
            Some("error") if failed => failed = false,
            Some("error") => return wrong("finish error without an error".to_string()),
            _ if failed => return wrong("expected finish error".to_string()),
            None => continue,
            Some("stop" | "length" | "tool_calls") => {}
            Some(_) => return wrong("unknown finish_reason".to_string()),
        }
        *state = ChoiceState::Finished;
    }
    match states
        .iter()
        .position(|state| *state != ChoiceState::Finished)
    {
        Some(choice) => Err(format!("choice {choice} never finished")),
        None if !done => Err("no [DONE]".to_string()),
        None => Ok(()),
    }
}

/// Where a message stream is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MessageState {
    New,
    Between,
    In(&'static str),
    Delta,
    Over,
}

/// Holds a message stream against the protocol: `message_start`, blocks one after another, each
/// started, filled with deltas of its own type and stopped, then `message_delta` and
/// `message_stop`, or `error` as the last event.
///
/// # Errors
/// The first event that is out of order.
pub fn check_message_stream(bytes: &[u8]) -> Result<(), String> {
    use MessageState::{Between, Delta, In, New, Over};
    let mut state = New;
    let mut num_blocks = 0;
    for (idx, event) in events(bytes)?.into_iter().enumerate() {
        let StreamData::Json(json) = &event.data else {
            return Err(format!("event {idx}: [DONE] in a message stream"));
        };
        let name = event.name.as_deref().unwrap_or_default();
        if json["type"] != name {
            return Err(format!("event {idx}: name and type differ: {event:?}"));
        }
        let is_last_block = || json["index"].as_u64().is_some_and(|i| i + 1 == num_blocks);
        let next = match (state, name) {
            (New, "message_start") => Some(Between),
            (New | Over, _) => None,
            (_, "ping") => Some(state),
            (Between, "content_block_start") if json["index"] == num_blocks => {
                num_blocks += 1;
                match json["content_block"]["type"].as_str() {
                    Some("thinking") => Some(In("thinking")),
                    Some("text") => Some(In("text")),
                    Some("tool_use") => Some(In("tool_use")),
                    _ => None,
                }
            }
            (In(kind), "content_block_delta") if is_last_block() => {
                let fits = match json["delta"]["type"].as_str() {
                    Some("thinking_delta" | "signature_delta") => kind == "thinking",
                    Some("text_delta") => kind == "text",
                    Some("input_json_delta") => kind == "tool_use",
                    _ => false,
                };
                fits.then_some(state)
            }
            (In(_), "content_block_stop") if is_last_block() => Some(Between),
            (Between, "message_delta") => Some(Delta),
            (Delta, "message_stop") | (Between, "error") => Some(Over),
            _ => None,
        };
        state = next.ok_or_else(|| format!("event {idx}: in {state:?} came {event:?}"))?;
    }
    match state {
        Over => Ok(()),
        state => Err(format!("the stream ends in {state:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(lines: &[&str]) -> Result<(), String> {
        let data: String = lines
            .iter()
            .map(|line| format!("data: {line}\n\n"))
            .collect();
        check_chat_stream(data.as_bytes(), 1)
    }

    fn chunk(delta: &str, finish: &str) -> String {
        format!(
            "{{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\
             \"delta\":{delta},\"finish_reason\":{finish}}}]}}"
        )
    }

    #[test]
    fn the_automaton_refuses_what_is_out_of_order() {
        let role = chunk(r#"{"role":"assistant"}"#, "null");
        let text = chunk(r#"{"content":"a"}"#, "null");
        let stop = chunk("{}", "\"stop\"");
        let error = r#"{"error":{}}"#;
        let error_end = chunk("{}", "\"error\"");
        assert_eq!(chat(&[&role, &text, &stop, "[DONE]"]), Ok(()));
        assert_eq!(chat(&[&role, &text, error, &error_end, "[DONE]"]), Ok(()));
        for wrong in [
            vec![&*text, &stop, "[DONE]"],
            vec![&role, &role, &stop, "[DONE]"],
            vec![&role, &text, "[DONE]"],
            vec![&role, &text, &stop],
            vec![&role, &stop, &text, "[DONE]"],
            vec![&role, &stop, "[DONE]", &text],
            vec![&role, &error_end, "[DONE]"],
            vec![&role, error, &stop, "[DONE]"],
            vec![&role, error, "[DONE]"],
            vec![],
        ] {
            assert!(chat(&wrong).is_err(), "{wrong:?}");
        }
    }
}
