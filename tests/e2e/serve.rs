//! `lockstep serve`: answers, streams, cancellation and the end, over raw sockets. What official clients
//! see is tested with them, in `tests/clients/`.

use super::{
    http,
    running::{Running, until},
};
use serde_json::{Value, json};
use std::io::{Read, Write};

fn question(fields: Value) -> Value {
    let message = json!({"role": "user", "content": "What is the capital of Peru?"});
    let mut body = json!({"messages": [message], "temperature": 0});
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name.as_str()] = value.clone();
    }
    body
}

#[test]
fn answers_and_streams() {
    let mut server = Running::start(&["--threads", "1"]);
    for path in ["/health", "/ready", "/version"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let plain = server.chat(question(json!({})));
    assert_eq!(plain.status, 200, "{}", plain.text());
    let answer = plain.json();
    let content = answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("content")
        .to_owned();
    assert!(content.contains("Lima"), "{answer}");
    let streamed = server.chat(question(json!({"stream": true})));
    assert!(
        streamed.head.contains("text/event-stream"),
        "{}",
        streamed.head
    );
    let text = streamed.text();
    let events: Vec<&str> = text
        .split("\n\n")
        .filter(|event| !event.is_empty())
        .collect();
    assert_eq!(events.last(), Some(&"data: [DONE]"));
    let joined: String = events
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned()))
        .collect();
    assert_eq!(joined, content);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "SIGTERM drains");
}

#[test]
fn a_prompt_asked_again_is_found_and_answered_the_same() {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(20);
    let message = json!({"role": "user", "content": text});
    let body = json!({"messages": [message], "max_tokens": 8, "temperature": 1, "seed": 3});
    let mut answers: Vec<Value> = Vec::new();
    let mut found = Vec::new();
    for flags in [&["--threads", "1"][..], &["--no-prefix-cache"]] {
        let server = Running::start(flags);
        for _ in 0..2 {
            let answer = server.chat(body.clone()).json();
            let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
            found.push(cached.as_u64().expect("a number"));
            answers.push(answer["choices"][0]["message"].clone());
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    let warm = found[1];
    assert!(warm > 64 && warm.is_multiple_of(64), "{warm}");
    assert_eq!(found, [0, warm, 0, 0]);
}

#[test]
fn a_client_that_goes_away_frees_its_blocks() {
    let server = Running::start(&["--threads", "1"]);
    let mut body = question(json!({"stream": true, "max_tokens": 1900, "ignore_eos": true}));
    body["model"] = Value::from(server.model.as_str());
    let body = body.to_string();
    let mut stream = http::connect(server.address);
    let head = http::head("POST", "/v1/chat/completions", body.len());
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("sent");
    let mut some = [0; 2048];
    assert!(stream.read(&mut some).expect("the stream begins") > 0);
    until("it runs", || {
        server.metric("vllm:num_requests_running") == 1.0
    });
    drop(stream);
    until("its blocks are free", || {
        server.metric("vllm:num_requests_running") == 0.0
            && server.metric("vllm:kv_cache_usage_perc") == 0.0
    });
    assert!(
        server.metric("vllm:generation_tokens_total") < 1900.0,
        "it was not run to its end"
    );
}

#[test]
fn keys_are_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    std::fs::write(&file, "first\nsecond\n").expect("written");
    let mut command = super::lockstep(&["serve", "--port", "0", "--api-key-file"]);
    command.arg(&file);
    // `Running` asks for the model, which needs the key; here a bare child will do.
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a line");
    let address = line
        .split("http://")
        .nth(1)
        .expect("a URL")
        .trim()
        .parse()
        .expect("an address");
    let with = |header: &str| {
        let request =
            format!("GET /v1/models HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{header}\r\n");
        http::raw(address, request.as_bytes())
            .expect("an answer")
            .status
    };
    let statuses = [
        with(""),
        with("authorization: Bearer wrong\r\n"),
        with("authorization: Bearer first\r\n"),
        with("authorization: Bearer second\r\n"),
        with("x-api-key: second\r\n"),
    ];
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(statuses, [401, 401, 200, 200, 200]);
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Running::start(&["--threads", "1", "--grace-seconds", "600"]);
    let mut body = question(json!({"stream": true, "max_tokens": 1900, "ignore_eos": true}));
    body["model"] = Value::from(server.model.as_str());
    let body = body.to_string();
    let mut stream = http::connect(server.address);
    let head = http::head("POST", "/v1/chat/completions", body.len());
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("sent");
    let mut some = [0; 512];
    assert!(stream.read(&mut some).expect("the stream begins") > 0);
    server.signal("TERM");
    until("it is not ready", || {
        http::raw(
            server.address,
            b"GET /ready HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n",
        )
        .is_none_or(|answer| answer.status == 503)
    });
    server.signal("INT");
    let code = server.wait().code();
    assert!(matches!(code, Some(130 | 0)), "{code:?}");
}
