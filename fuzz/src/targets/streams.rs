//! Whatever an engine says, in whatever order a parser can say it and however it ends: the streams of all
//! APIs are words of their automata. The law of `engine/server/src/sse/laws.rs`; besides, how a text was cut
//! into events changes no text that a client reads.

use super::note_held;
use crate::decode::byte;
use arbitrary::Unstructured;
use lockstep_core::{EventKind, Finish, Finished, RequestError, Usage};
use lockstep_package::Package;
use lockstep_server::ChatModel;
use lockstep_server::automaton::{StreamData, events};
use lockstep_server::stream_words::{Said, Streams};
use lockstep_step::{Digest, TokenId};
use lockstep_tags::{TagError, TagErrorKind};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

static MODEL: LazyLock<Arc<dyn ChatModel>> =
    LazyLock::new(|| Arc::new(Package::embedded().expect("the embedded model")));

/// Updates of one choice.
const UPDATES_MAX: usize = 60;

/// How many choices, and what each is told.
pub fn streams(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let flags = byte(&mut input);
    let num_choices = usize::from(flags % 3) + 1;
    let choices: Vec<Vec<Said>> = (0..num_choices).map(|_| updates(&mut input)).collect();
    note_held();
    let streams = Streams::of(&MODEL, &choices, flags & 4 != 0);
    streams
        .check()
        .unwrap_or_else(|error| panic!("{error}, of {choices:?}"));
    let cut: Vec<Vec<Said>> = choices.iter().map(|said| in_characters(said)).collect();
    let again = Streams::of(&MODEL, &cut, flags & 4 != 0);
    again
        .check()
        .unwrap_or_else(|error| panic!("{error}, of {cut:?}"));
    assert_eq!(texts(&streams.chat), texts(&again.chat), "{choices:?}");
    assert_eq!(
        texts(&streams.completion),
        texts(&again.completion),
        "{choices:?}"
    );
    assert_eq!(
        texts(&streams.message),
        texts(&again.message),
        "{choices:?}"
    );
}

/// What one choice is told: reasoning, content and calls in any order, and an end. Bytes say which.
fn updates(input: &mut Unstructured<'_>) -> Vec<Said> {
    let mut said = Vec::new();
    let mut num_calls = 0;
    let mut in_call = false;
    let event = Said::Event;
    while said.len() < UPDATES_MAX {
        let kind = byte(input);
        match kind % 8 {
            0 | 1 if !in_call => said.push(event(EventKind::Content(text(input, kind)))),
            2 if !in_call => said.push(event(EventKind::Reasoning(text(input, kind)))),
            3 if !in_call => {
                in_call = true;
                let name = ["f", "weather", "é"][usize::from(kind / 8) % 3].to_string();
                let index = num_calls;
                said.push(event(EventKind::CallBegin { index, name }));
            }
            0..=2 => {
                let (index, fragment) = (num_calls, text(input, kind));
                said.push(event(EventKind::CallArguments { index, fragment }));
            }
            3 => {
                said.push(event(EventKind::CallEnd { index: num_calls }));
                in_call = false;
                num_calls += 1;
            }
            4 => said.push(event(EventKind::Token {
                token: TokenId(u32::from(kind)),
                bytes: vec![kind],
                logprobs: None,
                digest: Digest::default(),
            })),
            5 => said.push(event(EventKind::Scheduled)),
            6 => said.push(event(EventKind::Preempted)),
            _ => break,
        }
    }
    said.push(end(input, num_calls));
    said
}

fn text(input: &mut Unstructured<'_>, kind: u8) -> String {
    let len = usize::from(kind / 8) % 6;
    let bytes = input.bytes(len.min(input.len())).unwrap_or(&[]);
    String::from_utf8_lossy(bytes).into_owned()
}

fn end(input: &mut Unstructured<'_>, num_calls: u32) -> Said {
    let kind = byte(input);
    let finish = match kind % 10 {
        0 => Finish::EndToken(TokenId(0)),
        1 => Finish::StopString("END".to_string()),
        2 => Finish::Length,
        3 => Finish::ToolCalls,
        4 => Finish::Aborted,
        5 => Finish::Error(RequestError::Engine("broken".to_string())),
        6 => Finish::Error(RequestError::Tag(TagError {
            kind: TagErrorKind::MalformedCall,
            offset: num_calls as usize,
            expected: "a tag".to_string(),
            markup: "<tool_call>\n\"".to_string(),
        })),
        7 => return Said::SlowReader,
        8 => return Said::ShuttingDown,
        _ => return Said::EngineStopped,
    };
    Said::Event(EventKind::Finished(Finished {
        finish,
        usage: Usage::default(),
        dropped_call: (kind > 127).then(|| "<tool_call>".to_string()),
    }))
}

/// The same, with every text a character at a time.
fn in_characters(said: &[Said]) -> Vec<Said> {
    let mut out = Vec::new();
    for said in said {
        let pieces = |text: &str, make: &dyn Fn(String) -> EventKind| {
            let pieces = text.chars().map(|c| Said::Event(make(c.to_string())));
            pieces.collect::<Vec<Said>>()
        };
        match said {
            Said::Event(EventKind::Content(text)) => out.extend(pieces(text, &EventKind::Content)),
            Said::Event(EventKind::Reasoning(text)) => {
                out.extend(pieces(text, &EventKind::Reasoning));
            }
            Said::Event(EventKind::CallArguments { index, fragment }) => {
                let make = |fragment| EventKind::CallArguments {
                    index: *index,
                    fragment,
                };
                out.extend(pieces(fragment, &make));
            }
            said => out.push(said.clone()),
        }
    }
    out
}

/// All texts that a client reads, joined per place where they come from.
fn texts(stream: &[u8]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |place: String, text: &Value| {
        let Some(text) = text.as_str().filter(|text| !text.is_empty()) else {
            return;
        };
        match found.iter_mut().find(|entry| entry.0 == place) {
            Some(entry) => entry.1.push_str(text),
            None => found.push((place, text.to_string())),
        }
    };
    for event in events(stream).expect("events") {
        let StreamData::Json(json) = event.data else {
            continue;
        };
        for choice in json["choices"].as_array().into_iter().flatten() {
            let (number, delta) = (&choice["index"], &choice["delta"]);
            add(format!("{number} text"), &choice["text"]);
            add(format!("{number} content"), &delta["content"]);
            add(format!("{number} reasoning"), &delta["reasoning_content"]);
            let call = &delta["tool_calls"][0];
            add(
                format!("{number} call {}", call["index"]),
                &call["function"]["arguments"],
            );
        }
        let delta = &json["delta"];
        for kind in ["text", "thinking", "partial_json"] {
            add(format!("block {} {kind}", json["index"]), &delta[kind]);
        }
    }
    found.sort();
    found
}
