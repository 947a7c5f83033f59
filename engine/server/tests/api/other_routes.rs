//! The small routes: models, health, metrics, version, the page, tokens, keys, ids.

use crate::harness::*;
use http_body_util::Full;
use hyper::Request;
use serde_json::json;

#[tokio::test]
async fn models_are_listed_for_clients_of_both_apis() {
    let mut setup = Setup::new();
    setup.config.model_names = vec!["org/tiny".to_string(), "alias".to_string()];
    let server = setup.start();
    let list = server.get("/v1/models").await.json();
    assert_eq!(list["data"][0]["id"], "org/tiny");
    assert_eq!(list["data"][0]["max_model_len"], 2048);
    assert_eq!(list["data"][1]["type"], "model");
    assert_eq!(
        server.get("/v1/models/org/tiny").await.json()["object"],
        "model"
    );
    let missing = server.get("/v1/models/other").await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.json()["error"]["code"], "model_not_found");
    let body = with(&hello(), json!({"model": "alias", "max_tokens": 1}));
    let answer = server.post("/v1/chat/completions", &body).await.json();
    assert_eq!(answer["model"], "org/tiny");
}

#[tokio::test]
async fn the_page_lists_routes_and_metrics_count() {
    let server = Setup::says("</think>Yes.<|user|>").start();
    let page = server.get("/").await;
    assert!(String::from_utf8_lossy(&page.bytes).contains("/v1/chat/completions"));
    assert_eq!(server.get("/version").await.json()["name"], "lockstep");
    assert_eq!(server.get("/ready").await.json()["status"], "ready");
    let body = with(&hello(), json!({"brand_new_field": 1}));
    let answer = server.post("/v1/chat/completions", &body).await.json();
    let metrics = server.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
    let labels = "model_name=\"tiny\",engine=\"0\"";
    let count = &answer["usage"]["completion_tokens"];
    for line in [
        format!("lockstep_unknown_fields_total{{{labels}}} 1"),
        format!("vllm:generation_tokens_total{{{labels}}} {count}"),
        format!("vllm:request_success_total{{{labels},finished_reason=\"stop\"}} 1"),
        format!("vllm:time_to_first_token_seconds_count{{{labels}}} 1"),
        format!("vllm:engine_healthy{{{labels}}} 1"),
    ] {
        assert!(
            metrics.contains(&format!("{line}\n")),
            "{line} is missing in\n{metrics}"
        );
    }
}

#[tokio::test]
async fn tokens_there_and_back() {
    let server = Setup::new().start();
    let body = json!({"prompt": "hello <think> you", "return_token_strs": true});
    let answer = server.post("/tokenize", &body).await.json();
    let strings = answer["token_strs"].as_array().expect("strings");
    assert!(strings.contains(&json!("<think>")));
    let back = server
        .post("/detokenize", &json!({"tokens": answer["tokens"]}))
        .await
        .json();
    assert_eq!(back["prompt"], body["prompt"]);
}

#[tokio::test]
async fn a_key_is_asked_for_in_either_header() {
    let mut setup = Setup::says("</think>Yes.<|user|>");
    setup.config.api_keys = vec!["first".to_string(), "second".to_string()];
    let server = setup.start();
    for (name, value, status) in [
        ("authorization", "Bearer second", 200),
        ("authorization", "bearer first", 200),
        ("x-api-key", "first", 200),
        ("authorization", "Bearer third", 401),
        ("authorization", "first", 401),
        ("x-api-key", "", 401),
        ("x-other", "first", 401),
    ] {
        let request = Request::get("/v1/models")
            .header(name, value)
            .body(Full::default());
        let answer = server.ask(request.expect("a request")).await;
        assert_eq!(answer.status, status, "{name}: {value}");
    }
    for open in ["/health", "/ready", "/metrics"] {
        assert_eq!(server.get(open).await.status, 200);
    }
    let refused = server.post("/v1/messages", &json!({})).await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.json()["error"]["type"], "authentication_error");
}

#[tokio::test]
async fn each_response_has_an_id_or_echoes_one() {
    let server = Setup::new().start();
    let made = server.get("/nowhere").await;
    let id = made.headers["x-request-id"].to_str().expect("text");
    assert!(id.starts_with("req_"), "{id}");
    let request = Request::post("/v1/messages")
        .header("x-request-id", "mine-1")
        .body(Full::default());
    let echoed = server.ask(request.expect("a request")).await;
    assert_eq!(echoed.headers["x-request-id"], "mine-1");
    assert_eq!(echoed.json()["request_id"], "mine-1");
}
