//! The prefix cache from outside: what usage and metrics say of it, and salts.

use crate::harness::*;
use serde_json::{Value, json};

/// A question long enough for several blocks.
fn long(path: &str) -> Value {
    let text = "All work and no play makes Jack a dull boy. ".repeat(20);
    match path {
        "/v1/completions" => json!({"prompt": text, "max_tokens": 3}),
        _ => json!({"messages": [{"role": "user", "content": text}], "max_tokens": 3}),
    }
}

/// Tokens of the prompt, and how many of them were found.
fn counted(usage: &Value) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().expect("a number");
    match usage.get("cache_read_input_tokens") {
        Some(found) => (
            number(&usage["input_tokens"]) + number(found),
            number(found),
        ),
        None => (
            number(&usage["prompt_tokens"]),
            number(&usage["prompt_tokens_details"]["cached_tokens"]),
        ),
    }
}

#[tokio::test]
async fn usage_says_what_was_found_and_salts_find_their_own() {
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/messages"] {
        let server = Setup::new().start();
        let mut asked = Vec::new();
        for salt in [None, Some("a"), None, Some("a"), Some("b")] {
            let body = with(&long(path), json!({"cache_salt": salt, "seed": 3}));
            let answer = server.post(path, &body).await;
            assert_eq!(answer.status, 200, "{:?}", answer.bytes);
            asked.push(counted(&answer.json()["usage"]));
        }
        let len = asked[0].0;
        assert!(len > 200, "{len} tokens are few");
        let whole = (len - 1) / 64 * 64;
        let expected = [0, 0, whole, whole, 0].map(|found| (len, found));
        assert_eq!(asked, expected, "{path}");
        let queries = "vllm:prefix_cache_queries_total";
        server.wait_for(queries, 5.0 * len as f64).await;
        let hits = "vllm:prefix_cache_hits_total";
        server.wait_for(hits, 2.0 * whole as f64).await;
        server.wait_for("vllm:kv_cache_usage_perc", 0.0).await;
        assert!(server.metric("lockstep_prefix_cache_blocks") >= 9.0);
    }
}

#[tokio::test]
async fn a_salt_is_a_string_that_says_something() {
    let server = Setup::new().start();
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/messages"] {
        for salt in [json!(""), json!(7), json!(["a"]), json!("x".repeat(513))] {
            let body = with(&long(path), json!({ "cache_salt": salt }));
            let answer = server.post(path, &body).await;
            assert_eq!(answer.status, 400, "{path} {salt}");
            let error = answer.json();
            let text = error["error"]["message"].to_string();
            assert!(text.contains("cache_salt is"), "{text}");
        }
    }
    assert_eq!(server.metric("lockstep_unknown_fields_total"), 0.0);
}

#[tokio::test]
async fn a_server_without_the_cache_finds_nothing() {
    let mut setup = Setup::new();
    setup.engine.prefix_cache = false;
    let server = setup.start();
    let path = "/v1/chat/completions";
    for _ in 0..2 {
        let answer = server.post(path, &long(path)).await.json();
        assert_eq!(counted(&answer["usage"]).1, 0);
    }
    assert_eq!(server.metric("vllm:prefix_cache_queries_total"), 0.0);
}
