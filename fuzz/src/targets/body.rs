//! Bodies of requests that are JSON with fields of the APIs in them: a sound body, and fields put in its place
//! by bytes, each with a value that may be of any kind.

use crate::decode::{byte, pick};
use arbitrary::Unstructured;
use serde_json::{Map, Value, json};

/// Fields of the two APIs.
const FIELDS: &[&str] = &[
    "model",
    "messages",
    "prompt",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
    "stop",
    "stop_sequences",
    "logprobs",
    "top_logprobs",
    "echo",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "structured_outputs",
    "reasoning_effort",
    "thinking",
    "system",
    "chat_template_kwargs",
    "speculate",
    "cache_salt",
    "tokens",
    "text",
    "add_generation_prompt",
    "add_special_tokens",
    "ignore_eos",
    "metadata",
    "user",
    "role",
    "content",
    "type",
    "function",
    "parameters",
    "input_schema",
    "strict",
    "best_of",
    "suffix",
];

/// A body for a route.
pub fn body(path: &str, input: &mut Unstructured<'_>) -> Value {
    let mut body = Map::from_iter([("model".to_string(), json!("tiny"))]);
    let mut set = |name: &str, value: Value| drop(body.insert(name.to_string(), value));
    match path {
        "/v1/completions" => set("prompt", json!("once")),
        "/detokenize" => set("tokens", json!([5, 6])),
        "/tokenize" => set("prompt", json!("a b")),
        _ => set("messages", json!([{"role": "user", "content": "hi"}])),
    }
    set("max_tokens", json!(6));
    let num_fields = byte(input) % 6;
    for _ in 0..num_fields {
        let name = *pick(input, FIELDS);
        body.insert(name.to_string(), value(name, input, 3));
    }
    Value::Object(body)
}

/// A value: mostly one that the field may have.
fn value(name: &str, input: &mut Unstructured<'_>, depth: u32) -> Value {
    let kind = byte(input);
    let fitting = fitting(name, input);
    match (kind % 8, fitting) {
        (0..=5, Some(value)) => value,
        (6, Some(Value::Array(mut items))) if depth > 0 => {
            items.push(any(input, depth - 1));
            Value::Array(items)
        }
        (6, Some(Value::Object(mut map))) if depth > 0 => {
            let inner = *pick(input, FIELDS);
            map.insert(inner.to_string(), value(inner, input, depth - 1));
            Value::Object(map)
        }
        _ => any(input, depth),
    }
}

fn any(input: &mut Unstructured<'_>, depth: u32) -> Value {
    match byte(input) % 12 {
        0 => Value::Null,
        1 => json!(byte(input) & 1 == 0),
        2 => json!(byte(input) as i8),
        3 => json!(f64::from(byte(input)) / 16.0),
        4 => json!(i64::MAX),
        5 => json!(-1.5e300),
        6 => json!(""),
        7 => json!("a\u{0}é<think></s>"),
        8 if depth > 0 => (0..byte(input) % 4)
            .map(|_| any(input, depth - 1))
            .collect(),
        9 if depth > 0 => {
            let name = *pick(input, FIELDS);
            let inner = value(name, input, depth - 1);
            Value::Object(Map::from_iter([(name.to_string(), inner)]))
        }
        10 => json!({}),
        _ => json!([]),
    }
}

// Long on purpose: one field after the other.
fn fitting(name: &str, input: &mut Unstructured<'_>) -> Option<Value> {
    let choice = byte(input);
    let one_of = |values: &[Value]| values.get(usize::from(choice) % values.len()).cloned();
    let share = f64::from(choice) / 255.0;
    match name {
        "stream"
        | "echo"
        | "parallel_tool_calls"
        | "ignore_eos"
        | "strict"
        | "add_generation_prompt"
        | "add_special_tokens" => Some(json!(choice & 1 == 0)),
        "temperature" | "repetition_penalty" => Some(json!(share * 2.1)),
        "top_p" | "min_p" => Some(json!(share)),
        "frequency_penalty" | "presence_penalty" => Some(json!(share * 4.0 - 2.0)),
        "n" | "best_of" => Some(json!(choice % 4)),
        "max_tokens" | "max_completion_tokens" => Some(json!(choice % 24)),
        "top_k" | "seed" | "top_logprobs" => Some(json!(choice % 12)),
        "logprobs" => one_of(&[json!(true), json!(2)]),
        "stream_options" => Some(json!({"include_usage": choice & 1 == 0})),
        "logit_bias" => Some(json!({(choice.to_string()): 1.5})),
        "stop" | "stop_sequences" => one_of(&[json!("a"), json!(["b", " "]), json!([])]),
        "messages" => one_of(&[
            json!([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]),
            json!([{"role": "user", "content": [{"type": "text", "text": "a</think>"}]}]),
            json!([{"role": "user", "content": "a"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type":
                    "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "r"}]),
            json!([{"role": "user", "content": "a"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "t",
                    "signature": ""}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c",
                    "content": "r"}]}]),
            json!([{"role": "assistant", "content": "prefix"}]),
            json!([]),
        ]),
        "prompt" => one_of(&[
            json!("x"),
            json!(["x", "y"]),
            json!([5, 6]),
            json!([[5], [6, 7]]),
        ]),
        "tokens" => one_of(&[json!([1, 2, 3]), json!([4_000_000_000_u32]), json!([-1])]),
        "tools" => one_of(&[
            json!([{"type": "function", "function": {"name": "f", "parameters": schema(choice)}}]),
            json!([{"type": "function", "function": {"name": "f", "strict": true,
                "parameters": schema(choice)}}, {"type": "function", "function": {"name": "g"}}]),
            json!([{"name": "f", "input_schema": schema(choice)}]),
            json!([{"type": "web_search", "name": "w"}]),
        ]),
        "tool_choice" => one_of(&[
            json!("auto"),
            json!("none"),
            json!("required"),
            json!({"type": "function", "function": {"name": "f"}}),
            json!({"type": "any"}),
            json!({"type": "tool", "name": "g", "disable_parallel_tool_use": true}),
        ]),
        "response_format" => one_of(&[
            json!({"type": "json_object"}),
            json!({"type": "text"}),
            json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true,
                "schema": schema(choice)}}),
        ]),
        "structured_outputs" => one_of(&[
            json!({"regex": "[ab]{1,3}"}),
            json!({"choice": ["yes", "no"]}),
            json!({"grammar": "start: \"a\" | \"b\" start"}),
            json!({"json": schema(choice)}),
        ]),
        "parameters" | "input_schema" => Some(schema(choice)),
        "reasoning_effort" => one_of(&[json!("low"), json!("high"), json!("none")]),
        "thinking" => one_of(&[
            json!({"type": "enabled", "budget_tokens": choice}),
            json!({"type": "disabled"}),
        ]),
        "system" => one_of(&[json!("s"), json!([{"type": "text", "text": "s"}])]),
        "chat_template_kwargs" => one_of(&[
            json!({"enable_thinking": false}),
            json!({"now": "2026-11-29", "messages": 3}),
        ]),
        "speculate" => one_of(&[json!("off"), json!("ngram:4"), json!("forced,suffix")]),
        "cache_salt" | "user" | "text" | "content" => Some(json!("x")),
        "role" => one_of(&[json!("user"), json!("developer"), json!("tool")]),
        "type" => one_of(&[json!("text"), json!("function"), json!("image")]),
        _ => None,
    }
}

fn schema(choice: u8) -> Value {
    let kind = ["string", "integer", "boolean", "null", "array"][usize::from(choice / 8) % 5];
    json!({
        "type": "object",
        "properties": {"a": {"type": kind}, "b": {"enum": [1, "x"]}},
        "required": ["a"],
        "additionalProperties": choice & 1 == 0,
    })
}
