//! What a grammar holds, with the embedded model drawing hot: nothing is malformed, and the bytes are the
//! same alone, in company, and with or without what the grammar proposes.

use super::{http, running::Running};
use serde_json::{Value, json};
use std::thread;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            "day": {"type": "string", "enum": ["monday", "sunday"]},
            "name": {"type": "string", "maxLength": 12},
            "loud": {"type": "boolean"},
        },
        "required": ["hour", "day"],
        "additionalProperties": false,
    })
}

/// Whether arguments, or an answer, are what the schema says; by hand, as a second witness.
fn is_alarm(value: &Value) -> bool {
    let Some(map) = value.as_object() else {
        return false;
    };
    let day = map.get("day").and_then(Value::as_str);
    map.get("hour")
        .and_then(Value::as_i64)
        .is_some_and(|hour| (0..24).contains(&hour))
        && day.is_some_and(|day| ["monday", "sunday"].contains(&day))
        && map.iter().all(|(key, value)| match key.as_str() {
            "hour" | "day" => true,
            "name" => value
                .as_str()
                .is_some_and(|name| name.chars().count() <= 12),
            "loud" => value.is_boolean(),
            _ => false,
        })
}

fn tools(strict: Option<bool>) -> Value {
    let mut function = json!({"name": "set_alarm", "parameters": schema()});
    if let Some(strict) = strict {
        function["strict"] = json!(strict);
    }
    let stop = json!({"type": "function", "function": {"name": "stop_alarm"}});
    json!([{"type": "function", "function": function}, stop])
}

/// A hot request; reasoning that would not end is closed.
fn hot(seed: usize, fields: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "set an alarm for tomorrow"}],
        "temperature": 1.5, "seed": seed, "max_tokens": 300, "reasoning": {"max_tokens": 24},
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name.as_str()] = value.clone();
    }
    body
}

/// Calls of an answer, and how many of them are malformed.
fn calls(answer: &http::Response) -> (usize, usize) {
    if answer.status != 200 {
        return (0, 1);
    }
    let answer = answer.json();
    let calls = answer["choices"][0]["message"]["tool_calls"]
        .as_array()
        .cloned();
    let calls = calls.unwrap_or_default();
    let fine = |call: &&Value| {
        let text = call["function"]["arguments"].as_str().unwrap_or_default();
        let arguments: Value = serde_json::from_str(text).unwrap_or_default();
        match call["function"]["name"].as_str() {
            Some("set_alarm") => is_alarm(&arguments),
            Some("stop_alarm") => arguments == json!({}),
            _ => false,
        }
    };
    (calls.len(), calls.len() - calls.iter().filter(fine).count())
}

#[test]
fn no_call_is_malformed_under_a_grammar_and_many_are_without() {
    let server = Running::start(&["--threads", "1"]);
    let named = json!({"type": "function", "function": {"name": "set_alarm"}});
    let held = [
        json!({"tools": tools(None), "tool_choice": "required"}),
        json!({"tools": tools(None), "tool_choice": named, "parallel_tool_calls": false}),
        json!({"tools": tools(Some(true))}),
    ];
    for fields in held {
        let mut num_calls = 0;
        for seed in 0..25 {
            let answer = server.chat(hot(seed, fields.clone()));
            let (calls, malformed) = calls(&answer);
            assert_eq!(malformed, 0, "seed {seed}: {}", answer.text());
            num_calls += calls;
        }
        assert!(num_calls > 10, "{num_calls} calls: {fields}");
    }
    let mut num_malformed = 0;
    for seed in 0..50 {
        num_malformed += calls(&server.chat(hot(seed, json!({"tools": tools(None)})))).1;
    }
    assert!(
        num_malformed > 5,
        "{num_malformed} malformed calls of a hot model without a grammar"
    );
}

#[test]
fn answers_are_of_the_schema() {
    let server = Running::start(&["--threads", "1"]);
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "alarm", "schema": schema()}});
    let mut num_ended = 0;
    for seed in 0..25 {
        let answer = server.chat(hot(seed, json!({"response_format": format})));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let choice = answer.json()["choices"][0].clone();
        let text = choice["message"]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if choice["finish_reason"] == "stop" {
            num_ended += 1;
            let value: Value = serde_json::from_str(&text).expect("JSON");
            assert!(is_alarm(&value), "seed {seed}: {text}");
        } else {
            assert_eq!(choice["finish_reason"], "length");
        }
    }
    assert!(num_ended > 20, "{num_ended} of 25 ended");
}

/// What must be equal, and is not drawn per response.
fn outcome(server: &Running, body: &Value) -> Value {
    let mut answer = server.chat(body.clone()).json();
    let choice = &mut answer["choices"][0];
    for call in choice["message"]["tool_calls"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        call["id"] = Value::Null;
    }
    json!([choice, answer["usage"]])
}

#[test]
fn company_and_proposals_change_no_byte() {
    let format = json!({"type": "json_schema", "json_schema": {"schema": schema()}});
    let lark = "start: \"from \" HOUR \" to \" HOUR\nHOUR: /[0-9]{1,2}/";
    let bodies = [
        json!({"tools": tools(None), "tool_choice": "required"}),
        json!({"tools": tools(Some(true))}),
        json!({"tools": tools(None), "tool_choice": "none"}),
        json!({"response_format": format}),
        json!({"structured_outputs": {"regex": "[a-z]{5,20} at [0-9]{2}:00"}}),
        json!({"structured_outputs": {"choice": ["monday at noon", "sunday at noon"]}}),
        json!({"structured_outputs": {"grammar": lark}}),
        json!({}),
    ];
    let numbered = bodies.into_iter().enumerate();
    let bodies: Vec<Value> = numbered.map(|(seed, fields)| hot(seed, fields)).collect();
    let settings: [&[&str]; 4] = [
        &["--threads", "1"],
        &["--threads", "2", "--speculate", "off", "--checked"],
        &["--speculate", "suffix:15,ngram:3", "--checked"],
        &[
            "--speculate",
            "forced:3,suffix,ngram",
            "--max-num-batched-tokens",
            "9",
            "--kv-blocks",
            "40",
        ],
    ];
    let mut wanted: Option<Vec<Value>> = None;
    for flags in settings {
        let server = Running::start(flags);
        let alone: Vec<Value> = bodies.iter().map(|body| outcome(&server, body)).collect();
        let together: Vec<Value> = thread::scope(|scope| {
            let running = bodies
                .iter()
                .map(|body| scope.spawn(|| outcome(&server, body)));
            let running: Vec<_> = running.collect();
            running
                .into_iter()
                .map(|one| one.join().expect("an answer"))
                .collect()
        });
        assert_eq!(alone, together, "{flags:?}: alone and together");
        let proposed = server.metric("lockstep_drafts_total");
        assert_eq!(
            proposed > 0.0,
            !flags.contains(&"off"),
            "{flags:?}: {proposed}"
        );
        let wanted = wanted.get_or_insert_with(|| alone.clone());
        assert_eq!(&alone, wanted, "{flags:?}");
    }
}
