//! `POST /v1/completions`: text and tokens, several prompts, log-probabilities in their old shape.

use crate::harness::*;
use lockstep_server::automaton::{StreamData, check_completion_stream, events};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

/// Asks for a whole and a streamed answer, checks that texts and ends agree, returns the whole one.
pub async fn both(server: &TestServer, body: &Value, n: usize) -> Value {
    let body = with(body, json!({"seed": 7}));
    let whole = server.post(COMPLETIONS, &body).await;
    assert_eq!(whole.status, 200, "{:?}", whole.bytes);
    let whole = whole.json();
    let stream = with(
        &body,
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    let streamed = server.post(COMPLETIONS, &stream).await.bytes;
    assert_eq!(check_completion_stream(&streamed, n), Ok(()));
    let mut texts = vec![String::new(); n];
    let mut ends = vec![Value::Null; n];
    let mut tokens = vec![Vec::new(); n];
    let mut usage = Value::Null;
    for event in events(&streamed).expect("events") {
        let StreamData::Json(chunk) = event.data else {
            continue;
        };
        usage = chunk["usage"].clone();
        for choice in chunk["choices"].as_array().expect("choices") {
            let idx = choice["index"].as_u64().expect("an index") as usize;
            texts[idx] += choice["text"].as_str().expect("text");
            if !choice["finish_reason"].is_null() {
                ends[idx] = choice["finish_reason"].clone();
            }
            let more = choice["logprobs"]["tokens"].as_array();
            tokens[idx].extend(more.into_iter().flatten().cloned());
        }
    }
    let expected = uncached(whole.clone())["usage"].take();
    assert_eq!(uncached(json!({ "usage": usage }))["usage"], expected);
    for (idx, choice) in whole["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .enumerate()
    {
        assert_eq!(choice["text"], texts[idx]);
        assert_eq!(choice["finish_reason"], ends[idx]);
        let listed = choice["logprobs"]["tokens"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert_eq!(listed, tokens[idx]);
    }
    whole
}

#[tokio::test]
async fn text_passes_through_untouched() {
    let server = Setup::says(" one\n</think><tool_call> two \n<|user|>").start();
    let body = json!({"model": "tiny", "prompt": "once upon", "max_tokens": 50});
    let answer = both(&server, &body, 1).await;
    assert_eq!(
        answer["choices"][0]["text"],
        " one\n</think><tool_call> two \n"
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn each_prompt_has_n_choices_and_sixteen_tokens() {
    let server = Setup::new().start();
    let ids = tokens("upon a time");
    let body = json!({
        "prompt": ["once", ids], "n": 2, "temperature": 1.2, "ignore_eos": true,
    });
    let answer = both(&server, &body, 4).await;
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 4);
    assert_eq!(answer["usage"]["completion_tokens"], 64);
    assert_eq!(choices[0]["seed"], choices[2]["seed"]);
    assert_eq!(choices[1]["seed"], choices[3]["seed"]);
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    let alone = json!({
        "prompt": "upon a time", "temperature": 1.2, "ignore_eos": true,
        "seed": choices[3]["seed"],
    });
    let alone = server.post(COMPLETIONS, &alone).await.json();
    assert_eq!(alone["choices"][0]["text"], choices[3]["text"]);
}

#[tokio::test]
async fn logprobs_have_their_old_shape() {
    let server = Setup::says("one two three<|user|>").start();
    let body = json!({"prompt": "count", "logprobs": 2, "max_tokens": 50});
    let answer = both(&server, &body, 1).await;
    let choice = &answer["choices"][0];
    let logprobs = &choice["logprobs"];
    let tokens = logprobs["tokens"].as_array().expect("tokens");
    let offsets = logprobs["text_offset"].as_array().expect("offsets");
    let text = choice["text"].as_str().expect("text");
    for (token, offset) in tokens.iter().zip(offsets) {
        let from = offset.as_u64().expect("an offset") as usize;
        assert!(text[from..].starts_with(token.as_str().expect("text")));
    }
    assert_eq!(
        logprobs["token_logprobs"].as_array().map(Vec::len),
        Some(tokens.len())
    );
    assert_eq!(
        logprobs["top_logprobs"].as_array().map(Vec::len),
        Some(tokens.len())
    );
}

#[tokio::test]
async fn an_echo_comes_before_the_text() {
    let server = Setup::says(" there<|user|>").start();
    let body = json!({"prompt": ["once upon", tokens("a time")], "echo": true, "max_tokens": 50});
    let answer = both(&server, &body, 2).await;
    assert_eq!(answer["choices"][0]["text"], "once upon there");
    assert_eq!(answer["choices"][1]["text"], "a time there");
}
