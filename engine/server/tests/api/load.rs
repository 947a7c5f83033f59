//! Clients that leave, clients that don't read, too many clients, and the end of the server.
//! Each test waits for conditions; no time decides one.

use crate::harness::*;
use http_body_util::BodyExt;
use lockstep_server::automaton::{check_chat_stream, check_message_stream};
use serde_json::{Value, json};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

/// A request that would run for long.
fn long() -> Value {
    with(
        &hello(),
        json!({"stream": true, "ignore_eos": true, "max_tokens": 1900, "temperature": 0}),
    )
}

/// A server on which a request takes so long that it is certainly still there.
fn slow() -> Setup {
    let mut setup = Setup::new();
    setup.config.step_pause = Some(Duration::from_millis(5));
    setup
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_blocks() {
    let server = slow().start();
    let mut sender = server.connect(1 << 16).await;
    let response = sender
        .send_request(post(CHAT, &long()))
        .await
        .expect("a response");
    let mut body = response.into_body();
    body.frame().await.expect("a frame").expect("data");
    server.wait_for("vllm:num_requests_running", 1.0).await;
    drop((body, sender));
    server.wait_for("vllm:num_requests_running", 0.0).await;
    server.wait_for("vllm:kv_cache_usage_perc", 0.0).await;
    assert!(server.metric("vllm:generation_tokens_total") < 1900.0);
}

#[tokio::test]
async fn a_client_that_leaves_a_whole_answer_frees_its_blocks() {
    let server = slow().start();
    let mut sender = server.connect(1 << 16).await;
    let body = with(&long(), json!({"stream": false}));
    let answer = tokio::spawn(async move { sender.send_request(post(CHAT, &body)).await.is_ok() });
    server.wait_for("vllm:num_requests_running", 1.0).await;
    answer.abort();
    server.wait_for("vllm:num_requests_running", 0.0).await;
    server.wait_for("vllm:kv_cache_usage_perc", 0.0).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let mut setup = Setup::new();
    setup.config.limits.stream_buffer_bytes_max = 4096;
    let server = setup.start();
    let mut sender = server.connect(256).await;
    let response = sender
        .send_request(post(CHAT, &long()))
        .await
        .expect("a response");
    server.wait_for("lockstep_slow_readers_total", 1.0).await;
    server.wait_for("vllm:num_requests_running", 0.0).await;
    // Others are served meanwhile.
    let other = server
        .post(CHAT, &with(&hello(), json!({"max_tokens": 3})))
        .await;
    assert_eq!(other.status, 200);
    // What had been buffered arrives, then the error, and the stream ends as streams do.
    let answer = read(response).await;
    assert_eq!(check_chat_stream(&answer.bytes, 1), Ok(()));
    let folded = fold_chat(&answer.bytes);
    assert_eq!(folded["error"]["code"], "slow_reader");
}

#[tokio::test]
async fn too_many_are_told_to_come_back() {
    let mut setup = slow();
    setup.engine.max_num_seqs = 1;
    setup.engine.max_waiting_requests = 1;
    let server = setup.start();
    let first = server.send(post(CHAT, &long())).await;
    server.wait_for("vllm:num_requests_running", 1.0).await;
    let second = server.send(post(CHAT, &long())).await;
    server.wait_for("vllm:num_requests_waiting", 1.0).await;
    let third = server.post(CHAT, &long()).await;
    assert_eq!(third.status, 429);
    assert_eq!(third.headers["retry-after"], "1");
    assert_eq!(third.json()["error"]["code"], "queue_full");
    let body = json!({
        "max_tokens": 5, "stream": true, "messages": [{"role": "user", "content": "hi"}],
    });
    let fourth = server.post("/v1/messages", &body).await;
    assert_eq!(fourth.status, 429);
    assert_eq!(fourth.json()["error"]["type"], "rate_limit_error");
    assert_eq!(server.metric("vllm:admission_rejections_total"), 2.0);
    drop((first, second));
    server.wait_for("vllm:num_requests_waiting", 0.0).await;
}

#[tokio::test]
async fn what_no_queue_can_hold_is_not_told_to_come_back() {
    let mut setup = slow();
    setup.engine.max_num_seqs = 1;
    setup.engine.max_waiting_requests = 1;
    let server = setup.start();
    let three = server
        .post(CHAT, &with(&hello(), json!({"n": 3, "max_tokens": 1})))
        .await;
    assert_eq!(three.status, 400);
    let error = &three.json()["error"];
    assert_eq!(error["code"], "never_fits");
    assert_eq!(error["param"], "n");
    let two = with(&hello(), json!({"n": 2, "max_tokens": 1}));
    assert_eq!(server.post(CHAT, &two).await.status, 200);
}

#[tokio::test]
async fn draining_finishes_what_runs() {
    let server = slow().start();
    let running = with(&long(), json!({"max_tokens": 40}));
    let running = server.send(post(CHAT, &running)).await;
    server.wait_for("vllm:num_requests_running", 1.0).await;
    let handle = server.server.handle();
    let drained = tokio::spawn(async move { handle.drain(Duration::from_secs(60)).await });
    loop {
        let ready = server.get("/ready").await;
        if ready.status == 503 {
            break;
        }
    }
    let refused = server.post(CHAT, &hello()).await;
    assert_eq!(refused.status, 503);
    assert!(refused.headers.contains_key("retry-after"));
    let answer = read(running).await;
    assert_eq!(check_chat_stream(&answer.bytes, 1), Ok(()));
    assert_eq!(
        fold_chat(&answer.bytes)["choices"][0]["finish_reason"],
        "length"
    );
    assert!(drained.await.expect("a verdict"));
}

#[tokio::test]
async fn what_the_grace_period_leaves_ends_with_an_error() {
    let server = slow().start();
    let chat = server.send(post(CHAT, &long())).await;
    let body = json!({
        "max_tokens": 1900, "stream": true, "ignore_eos": true,
        "messages": [{"role": "user", "content": "hi"}],
    });
    let message = server.send(post("/v1/messages", &body)).await;
    server.wait_for("vllm:num_requests_running", 2.0).await;
    assert!(!server.server.handle().drain(Duration::ZERO).await);
    let chat = read(chat).await;
    assert_eq!(check_chat_stream(&chat.bytes, 1), Ok(()));
    assert_eq!(fold_chat(&chat.bytes)["error"]["code"], "shutting_down");
    let message = read(message).await;
    assert_eq!(check_message_stream(&message.bytes), Ok(()));
    assert!(server.server.handle().stopped().is_some());
}

#[tokio::test]
async fn a_listener_serves_and_closes() {
    let server = Setup::says("</think>Yes.<|user|>").start();
    let listener = lockstep_server::bind("127.0.0.1:0", false, false)
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(lockstep_server::serve(listener, server.server.clone()));
    let socket = tokio::net::TcpStream::connect(address)
        .await
        .expect("a connection");
    let io = hyper_util::rt::TokioIo::new(socket);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
        .await
        .expect("http");
    tokio::spawn(connection);
    let answer = read(
        sender
            .send_request(post(CHAT, &hello()))
            .await
            .expect("a response"),
    )
    .await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "Yes.");
    assert!(server.server.handle().drain(Duration::from_secs(60)).await);
    serving.await.expect("the task").expect("the listener");
    let open = lockstep_server::bind("0.0.0.0:0", false, false).await;
    let open = open.expect_err("an open server without a key").to_string();
    assert!(open.contains("no API key is set"), "{open}");
}
