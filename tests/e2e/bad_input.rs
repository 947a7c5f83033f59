//! Bad requests of every kind: each has a status, a JSON error with a message, and a server that still
//! answers afterwards.

use super::{http, running::Running};
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

#[test]
fn every_bad_request_is_answered() {
    let server = Running::start(&["--threads", "1", "--max-body-mib", "1"]);
    let address = server.address;
    let user = r#""messages":[{"role":"user","content":"x"}]"#;
    let with = |fields: &str| format!("{{{user},{fields}}}").into_bytes();
    let long = format!(
        r#"{{"messages":[{{"role":"user","content":"{}"}}]}}"#,
        "w ".repeat(9000)
    );
    let cases: Vec<(&str, &str, &str, Vec<u8>, u16)> = vec![
        ("no JSON", "POST", CHAT, b"{".to_vec(), 400),
        ("nothing", "POST", CHAT, Vec::new(), 400),
        ("an array", "POST", CHAT, b"[]".to_vec(), 400),
        (
            "invalid UTF-8",
            "POST",
            CHAT,
            b"{\"messages\":\"\xff\"}".to_vec(),
            400,
        ),
        (
            "half a surrogate",
            "POST",
            CHAT,
            br#"{"messages":"\ud800"}"#.to_vec(),
            400,
        ),
        (
            "nested deeply",
            "POST",
            CHAT,
            "[".repeat(50_000).into_bytes(),
            400,
        ),
        ("no messages", "POST", CHAT, b"{}".to_vec(), 400),
        (
            "a number for messages",
            "POST",
            CHAT,
            br#"{"messages":7}"#.to_vec(),
            400,
        ),
        (
            "an unknown role",
            "POST",
            CHAT,
            br#"{"messages":[{"role":"wizard"}]}"#.to_vec(),
            400,
        ),
        (
            "a negative limit",
            "POST",
            CHAT,
            with(r#""max_tokens":-1"#),
            400,
        ),
        (
            "a huge limit of choices",
            "POST",
            CHAT,
            with(r#""n":4000000000"#),
            400,
        ),
        (
            "a text for a number",
            "POST",
            CHAT,
            with(r#""temperature":"hot""#),
            400,
        ),
        (
            "a number out of range",
            "POST",
            CHAT,
            with(r#""top_p":2"#),
            400,
        ),
        (
            "a number beyond floats",
            "POST",
            CHAT,
            with(r#""temperature":1e999"#),
            400,
        ),
        (
            "an unsupported field",
            "POST",
            CHAT,
            with(r#""response_format":{"type":"poem"}"#),
            400,
        ),
        (
            "a schema nested deeply",
            "POST",
            CHAT,
            with(&format!(
                r#""guided_json":{}{{}}{}"#,
                r#"{"items":"#.repeat(100),
                "}".repeat(100)
            )),
            400,
        ),
        (
            "a schema of many names",
            "POST",
            CHAT,
            with(&format!(
                r#""guided_json":{{"enum":[{}0]}}"#,
                "\"name\",".repeat(20_000)
            )),
            400,
        ),
        (
            "a regex that is none",
            "POST",
            CHAT,
            with(r#""guided_regex":"(a""#),
            400,
        ),
        (
            "a required call without tools",
            "POST",
            CHAT,
            with(r#""tool_choice":"required""#),
            400,
        ),
        (
            "another model",
            "POST",
            CHAT,
            with(r#""model":"other""#),
            404,
        ),
        ("a prompt too long", "POST", CHAT, long.into_bytes(), 400),
        ("no such route", "GET", "/v1/nothing", Vec::new(), 404),
        ("another method", "DELETE", CHAT, Vec::new(), 405),
        ("a body too large", "POST", CHAT, vec![b' '; 3 << 20], 413),
        (
            "tokens out of range",
            "POST",
            "/detokenize",
            br#"{"tokens":[123456789]}"#.to_vec(),
            400,
        ),
        (
            "Messages without a limit",
            "POST",
            "/v1/messages",
            with(r#""system":"s""#),
            400,
        ),
    ];
    for (name, method, path, body, status) in cases {
        let answer = http::request(address, method, path, &body);
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        let error = &answer.json()["error"];
        let message = error["message"].as_str().unwrap_or("");
        assert!(message.len() > 5, "{name}: {}", answer.text());
        assert_eq!(server.get("/health").status, 200, "after {name}");
    }
    let fine =
        server.chat(json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}));
    assert_eq!(fine.status, 200, "{}", fine.text());
}

#[test]
fn bytes_that_are_no_http() {
    let server = Running::start(&["--threads", "1"]);
    let address = server.address;
    let huge_header = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let lying = b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 99\r\n\r\n{}";
    let both = b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\
                 content-length: 3\r\n\r\n{}";
    let cases: [&[u8]; 6] = [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET",
        b"GET / HTTP/9.9\r\n\r\n",
        huge_header.as_bytes(),
        lying,
        both,
    ];
    for bytes in cases {
        if let Some(answer) = http::raw_to_the_end(address, bytes) {
            assert!((400..500).contains(&answer.status), "{}", answer.status);
        }
        assert_eq!(server.get("/health").status, 200);
    }
}
