//! Answers of Anthropic's messages API, whole and streamed. It must never fill in what the server left out.

use super::{Call, Finish, Invalid, InvalidKind, Reply, beginning, refusal, shape};
use serde_json::Value;
use std::collections::BTreeMap;

fn finish(name: &str) -> Finish {
    match name {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "max_tokens" => Finish::Length,
        "tool_use" => Finish::Calls,
        other => Finish::Other(other.to_owned()),
    }
}

fn named(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// A block of an answer, as far as it came.
#[derive(Debug, Default)]
struct Block {
    kind: String,
    text: String,
    call: Call,
}

impl Block {
    fn begin(block: &Value) -> Result<Block, Invalid> {
        let kind = block["type"].as_str();
        let kind = kind.ok_or_else(|| shape("a block has no type"))?;
        let text = match kind {
            "thinking" => &block["thinking"],
            _ => &block["text"],
        };
        // In streams the input comes in deltas, after an empty object that stands for it.
        let input = block.get("input").filter(|input| !input.is_null());
        Ok(Block {
            kind: kind.to_owned(),
            text: named(text).unwrap_or_default(),
            call: Call {
                id: named(&block["id"]),
                name: named(&block["name"]),
                arguments: input.map(|input| match input {
                    Value::String(text) => text.clone(),
                    input => input.to_string(),
                }),
            },
        })
    }
}

fn reply(blocks: impl IntoIterator<Item = Block>, finish: Finish) -> Reply {
    let mut reply = Reply {
        content: String::new(),
        reasoning: String::new(),
        calls: Vec::new(),
        finish,
        refused: None,
    };
    for block in blocks {
        match block.kind.as_str() {
            "text" => reply.content += &block.text,
            "thinking" => reply.reasoning += &block.text,
            "tool_use" => reply.calls.push(block.call),
            // Others are no part of what is judged.
            _ => {}
        }
    }
    reply
}

/// Reads a whole answer.
pub fn whole(json: &Value) -> Result<Reply, Invalid> {
    let blocks = json["content"].as_array();
    let blocks = blocks.ok_or_else(|| shape("the answer has no content blocks"))?;
    let name = json["stop_reason"].as_str();
    let name = name.ok_or_else(|| shape("the answer has no stop_reason"))?;
    let blocks: Result<Vec<Block>, Invalid> = blocks.iter().map(Block::begin).collect();
    Ok(reply(blocks?, finish(name)))
}

/// Reads the events of a stream.
pub fn stream(events: &[String]) -> Result<Reply, Invalid> {
    let broken = |what: &str| {
        Err(Invalid {
            kind: InvalidKind::BrokenStream,
            what: what.to_owned(),
        })
    };
    let mut blocks: BTreeMap<u64, Block> = BTreeMap::new();
    let mut deltas: BTreeMap<u64, String> = BTreeMap::new();
    let mut found = None;
    for data in events {
        let event: Value = serde_json::from_str(data)
            .map_err(|_| shape(format!("an event is no JSON: {}", beginning(data))))?;
        let index = event["index"].as_u64();
        let unknown = || shape(format!("an event of no block: {}", beginning(data)));
        match event["type"].as_str() {
            Some("error") => {
                let refused = refusal(&event["error"], "")?;
                let said = reply(blocks.into_values(), refused.finish);
                return Ok(Reply {
                    refused: refused.refused,
                    ..said
                });
            }
            Some("content_block_start") => {
                let block = Block::begin(&event["content_block"])?;
                blocks.insert(index.ok_or_else(unknown)?, block);
            }
            Some("content_block_delta") => {
                let index = index.ok_or_else(unknown)?;
                let block = blocks.get_mut(&index).ok_or_else(unknown)?;
                let delta = &event["delta"];
                let text = delta["text"].as_str().or(delta["thinking"].as_str());
                block.text += text.unwrap_or_default();
                if let Some(part) = delta["partial_json"].as_str() {
                    deltas.entry(index).or_default().push_str(part);
                }
            }
            Some("message_delta") => {
                found = event["delta"]["stop_reason"].as_str().map(finish).or(found);
            }
            Some("message_stop") => {
                for (index, arguments) in deltas {
                    if let Some(block) = blocks.get_mut(&index).filter(|_| !arguments.is_empty()) {
                        block.call.arguments = Some(arguments);
                    }
                }
                return match found {
                    Some(finish) => Ok(reply(blocks.into_values(), finish)),
                    None => broken("it has no stop_reason"),
                };
            }
            Some(_) => {}
            None => return Err(shape(format!("an event has no type: {}", beginning(data)))),
        }
    }
    broken("it ends without message_stop")
}
