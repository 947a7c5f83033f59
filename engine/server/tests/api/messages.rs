//! `POST /v1/messages`: whole and streamed say the same, block by block.

use crate::harness::*;
use lockstep_server::automaton::{StreamData, check_message_stream, events};
use serde_json::{Value, json};

const MESSAGES: &str = "/v1/messages";

fn hello() -> Value {
    json!({
        "model": "tiny", "max_tokens": 100,
        "messages": [{"role": "user", "content": "hello"}],
    })
}

fn weather() -> Value {
    let function = &weather_tools()[0]["function"];
    json!([{
        "name": "weather",
        "description": function["description"],
        "input_schema": function["parameters"],
    }])
}

fn fold(bytes: &[u8]) -> Value {
    let mut message = Value::Null;
    let mut json_text = String::new();
    for event in events(bytes).expect("events") {
        let StreamData::Json(data) = event.data else {
            continue;
        };
        let last = |message: &mut Value| {
            let blocks = message["content"].as_array_mut().expect("content");
            blocks.last_mut().map(Value::take)
        };
        match event.name.as_deref() {
            Some("message_start") => message = data["message"].clone(),
            Some("content_block_start") => {
                let blocks = message["content"].as_array_mut().expect("content");
                blocks.push(data["content_block"].clone());
                json_text.clear();
            }
            Some("content_block_delta") => {
                let delta = &data["delta"];
                let mut block = last(&mut message).expect("a block");
                for name in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[name].as_str() {
                        block[name] = json!(block[name].as_str().unwrap_or("").to_string() + more);
                    }
                }
                json_text += delta["partial_json"].as_str().unwrap_or("");
                *message["content"]
                    .as_array_mut()
                    .and_then(|b| b.last_mut())
                    .expect("a block") = block;
            }
            Some("content_block_stop") if !json_text.is_empty() => {
                let input: Value = serde_json::from_str(&json_text).expect("JSON");
                let blocks = message["content"].as_array_mut().expect("content");
                blocks.last_mut().expect("a block")["input"] = input;
            }
            Some("message_delta") => {
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                message["stop_sequence"] = data["delta"]["stop_sequence"].clone();
                message["usage"] = data["usage"].clone();
                if let Some(warnings) = data.get("warnings") {
                    message["warnings"] = warnings.clone();
                }
            }
            _ => {}
        }
    }
    message
}

pub async fn both(server: &TestServer, body: &Value) -> Value {
    let body = with(body, json!({"seed": 7}));
    let whole = server.post(MESSAGES, &body).await;
    assert_eq!(whole.status, 200, "{:?}", whole.bytes);
    let streamed = server
        .post(MESSAGES, &with(&body, json!({"stream": true})))
        .await;
    assert_eq!(check_message_stream(&streamed.bytes), Ok(()));
    assert_eq!(
        without_ids(uncached(whole.json())),
        without_ids(uncached(fold(&streamed.bytes)))
    );
    whole.json()
}

#[tokio::test]
async fn thinking_text_and_tool_use_are_blocks() {
    let server = Setup::says(WEATHER_CALL).start();
    let answer = both(&server, &with(&hello(), json!({"tools": weather()}))).await;
    assert_eq!(answer["stop_reason"], "tool_use");
    let content = answer["content"].as_array().expect("content");
    let kinds: Vec<&Value> = content.iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
    assert_eq!(content[0]["thinking"], "Let me look.");
    assert_eq!(content[1]["text"], "On it.");
    assert_eq!(content[2]["input"], json!({"city": "Paris", "days": 3}));
    assert!(
        content[2]["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("toolu_"))
    );
}

#[tokio::test]
async fn a_tool_result_goes_back_and_is_counted() {
    let server = Setup::says("ok</think>Sunny.<|user|>").start();
    let body = with(
        &hello(),
        json!({
            "system": [{"type": "text", "text": "Be brief."}],
            "tools": weather(),
            "messages": [
                {"role": "user", "content": "Paris?"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "look", "signature": "unsigned"},
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                ]},
            ],
        }),
    );
    let answer = both(&server, &body).await;
    assert_eq!(answer["content"][1]["text"], "Sunny.");
    assert_eq!(answer["stop_reason"], "end_turn");
    let count = server.post("/v1/messages/count_tokens", &body).await.json();
    assert_eq!(count["input_tokens"], answer["usage"]["input_tokens"]);
}

#[tokio::test]
async fn stop_sequences_and_limits_are_named() {
    let server = Setup::says("hm</think>one END two<|user|>").start();
    let answer = both(&server, &with(&hello(), json!({"stop_sequences": ["END"]}))).await;
    assert_eq!(answer["stop_reason"], "stop_sequence");
    assert_eq!(answer["stop_sequence"], "END");
    assert_eq!(answer["content"][1]["text"], "one");
    let answer = both(&server, &with(&hello(), json!({"max_tokens": 1}))).await;
    assert_eq!(answer["stop_reason"], "max_tokens");
    let off = json!({"thinking": {"type": "disabled"}});
    let answer = both(&server, &with(&hello(), off)).await;
    assert_eq!(answer["content"][0]["type"], "text");
}

#[tokio::test]
async fn a_broken_call_stops_open_blocks_and_ends_with_an_error() {
    let broken = "so</think>Well.<tool_call>weather<arg_key>days</arg_key>\
        <arg_value>many</arg_value></tool_call><|observation|>";
    let server = Setup::says(broken).start();
    let body = with(&hello(), json!({"tools": weather()}));
    let whole = server.post(MESSAGES, &body).await;
    assert_eq!(whole.status, 500);
    assert_eq!(whole.json()["error"]["code"], "bad_value");
    let markup = whole.json()["error"]["detail"]["markup"].clone();
    let markup = markup.as_str().expect("the markup of the call");
    assert!(markup.starts_with("<tool_call>weather") && markup.contains("many"));
    assert_eq!(
        whole.json()["error"]["partial"]["content"][1]["text"],
        "Well."
    );
    let streamed = server
        .post(MESSAGES, &with(&body, json!({"stream": true})))
        .await;
    assert_eq!(check_message_stream(&streamed.bytes), Ok(()));
    let last = events(&streamed.bytes)
        .expect("events")
        .pop()
        .expect("an event");
    assert_eq!(last.name.as_deref(), Some("error"));
}
