//! Any bytes to any route, through a connection: there is an answer, a refusal says in the words of its API
//! what was wrong, a stream is a word of its automaton, and the engine still runs afterwards.

use super::body::body;
use super::note_held;
use crate::decode::byte;
use arbitrary::Unstructured;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use lockstep_core::{Engine, EngineConfig, Speculation};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig};
use lockstep_package::Package;
use lockstep_server::automaton::{
    check_chat_stream, check_completion_stream, check_message_stream,
};
use lockstep_server::{
    ChatModel, RequestReader, Server, ServerConfig, serve_connection, vocabulary,
};
use lockstep_step::{BackendLimits, TokenId};
use serde_json::Value;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

/// What requests write.
pub const DICTIONARY: &[&str] = &[
    "\"model\": \"tiny\"",
    "\"messages\": [{\"role\": \"user\", \"content\": \"",
    "\"role\": \"assistant\"",
    "\"role\": \"tool\", \"tool_call_id\": \"",
    "\"role\": \"system\"",
    "{\"type\": \"text\", \"text\": \"",
    "{\"type\": \"image_url\"",
    "{\"type\": \"tool_result\", \"tool_use_id\": \"",
    "{\"type\": \"thinking\", \"thinking\": \"",
    "\"stream\": true",
    "\"stream_options\": {\"include_usage\": true}",
    "\"n\": 2",
    "\"max_tokens\": ",
    "\"max_completion_tokens\": ",
    "\"temperature\": ",
    "\"top_p\": ",
    "\"top_k\": ",
    "\"min_p\": ",
    "\"seed\": ",
    "\"stop\": [\"",
    "\"stop_sequences\": [\"",
    "\"logit_bias\": {\"",
    "\"logprobs\": true",
    "\"top_logprobs\": 3",
    "\"echo\": true",
    "\"prompt\": [[",
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"",
    "\"input_schema\": {",
    "\"tool_choice\": \"required\"",
    "\"tool_choice\": {\"type\": \"any\"}",
    "\"parallel_tool_calls\": false",
    "\"strict\": true",
    "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": ",
    "\"structured_outputs\": {\"regex\": \"",
    "\"choice\": [\"",
    "\"grammar\": \"start: ",
    "\"reasoning_effort\": \"low\"",
    "\"thinking\": {\"type\": \"enabled\", \"budget_tokens\": ",
    "\"chat_template_kwargs\": {",
    "\"speculate\": \"",
    "\"cache_salt\": \"",
    "\"tokens\": [",
    "\"text\": \"",
    "\"add_generation_prompt\": false",
    "POST /v1/chat/completions HTTP/1.1\r\n",
    "content-length: ",
    "transfer-encoding: chunked\r\n",
    "expect: 100-continue\r\n",
    "\r\n\r\n",
    "null",
    "true",
    "-1",
    "1e400",
    "18446744073709551616",
    "\\ud800",
    "\\u0000",
    "</think>",
    "<tool_call>",
];

const ROUTES: [(&str, &str); 14] = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("DELETE", "/v1/messages"),
    ("POST", "/v1/responses"),
    // With what the input says.
    ("GET", "/v1/models/"),
    ("GET", "/"),
];

struct World {
    server: Server,
    reader: RequestReader,
    runtime: Mutex<Runtime>,
}

/// One server for the process, as in life; what it answers depends on no request before.
static WORLD: LazyLock<World> = LazyLock::new(|| {
    let model = Arc::new(Package::embedded().expect("the embedded model"));
    let limits = BackendLimits {
        vocab_size: ChatModel::contract(model.as_ref()).vocab_size,
        num_blocks: 24,
        num_rows: 24,
        seq_len_max: 320,
        query_tokens_max: 512,
    };
    let engine_config = EngineConfig {
        checked: true,
        speculation: Speculation {
            suffix: 4,
            forced: 8,
            ..Speculation::OFF
        },
        ..EngineConfig::default()
    };
    let mut config = ServerConfig::new("tiny");
    config.default_max_tokens = Some(12);
    config.limits.n_max = 3;
    config.limits.prompts_max = 3;
    config.limits.body_bytes_max = 1 << 16;
    config.mask_threads = 1;
    let words = Arc::new(vocabulary(model.as_ref()));
    let engine = Engine::new(engine_config, limits, words).expect("an engine");
    let mut backend = FingerprintConfig::new(limits);
    let ends = &ChatModel::contract(model.as_ref()).end_tokens;
    backend.bias = ends.iter().map(|&token| (TokenId(token.0), 6.0)).collect();
    let backend = Fingerprint::new(backend);
    World {
        reader: RequestReader::new(config.clone(), model.clone()),
        server: Server::new(config, model, engine, backend).expect("a server"),
        runtime: Mutex::new(
            Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
        ),
    }
});

/// A route and a body, as bytes or as fields; or the bytes of a whole connection.
pub fn requests(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let kind = byte(&mut input);
    let route = ROUTES.get(usize::from(kind % 16));
    let built = route.filter(|_| kind & 64 != 0);
    let built = built.map(|(_, path)| body(path, &mut input).to_string().into_bytes());
    let rest = input.take_rest();
    let bytes = built.as_deref().unwrap_or(rest);
    let world = &*WORLD;
    let runtime = world.runtime.lock().unwrap_or_else(PoisonError::into_inner);
    note_held();
    match route {
        Some(&(method, path)) => {
            let told = runtime.block_on(ask(method, path, kind, bytes));
            told.check(path, bytes);
        }
        None => runtime.block_on(speak(bytes)),
    }
    assert_eq!(world.server.handle().stopped(), None);
}

/// A whole answer.
struct Answer {
    status: u16,
    is_stream: bool,
    bytes: Bytes,
}

async fn ask(method: &str, path: &str, kind: u8, body: &[u8]) -> Answer {
    let (near, far) = tokio::io::duplex(1 << 16);
    let served = tokio::spawn(serve_connection(far, WORLD.server.clone()));
    let (mut sender, connection) = handshake(TokioIo::new(near)).await.expect("a handshake");
    let connection = tokio::spawn(connection);
    // What can stand in a path comes from the body.
    let path = match path.ends_with('/') && path.len() > 1 {
        true => body
            .iter()
            .fold(path.to_string(), |path, byte| format!("{path}%{byte:02x}")),
        false => path.to_string(),
    };
    let mut request = Request::builder().method(method).uri(path);
    if kind & 16 != 0 {
        request = request.header("content-type", "application/json");
    }
    if kind & 32 != 0 {
        request = request.header("anthropic-version", "2023-06-01");
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body)));
    let response = sender.send_request(request.expect("a request")).await;
    let (parts, body) = response.expect("an answer").into_parts();
    let kind = parts.headers.get("content-type");
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let bytes = body.collect().await.expect("a whole body").to_bytes();
    drop(sender);
    connection.abort();
    served.await.expect("no panic in the connection");
    Answer {
        status: parts.status.as_u16(),
        is_stream,
        bytes,
    }
}

impl Answer {
    fn check(&self, path: &str, body: &[u8]) {
        let text = String::from_utf8_lossy(&self.bytes);
        let asked: Option<Value> = serde_json::from_slice(body).ok();
        if self.status >= 400 {
            let known = [400, 404, 405, 413, 415, 422, 429, 503].contains(&self.status);
            assert!(known, "{path}: {} {text}", self.status);
            let answer: Value = serde_json::from_slice(&self.bytes).expect("a refusal in JSON");
            let error = &answer["error"];
            for name in ["message", "type", "code"] {
                let told = error[name].as_str().is_some_and(|told| !told.is_empty());
                assert!(told, "{path}: no {name} in {text}");
            }
            let is_anthropic = answer["type"] == "error";
            assert!(is_anthropic || !path.starts_with("/v1/messages"), "{text}");
            return;
        }
        assert_eq!(self.status, 200, "{path}: {text}");
        let Some(asked) = asked.filter(|_| path.starts_with("/v1/")) else {
            return;
        };
        let n = asked["n"].as_u64().unwrap_or(1) as usize;
        let (num, checked) = match path {
            "/v1/chat/completions" => {
                assert!(WORLD.reader.chat(&asked).is_ok());
                (n, check_chat_stream(&self.bytes, n))
            }
            "/v1/completions" => {
                assert!(WORLD.reader.completion(&asked).is_ok());
                let n = n * num_prompts(&asked["prompt"]);
                (n, check_completion_stream(&self.bytes, n))
            }
            "/v1/messages" => (1, check_message_stream(&self.bytes)),
            _ => return,
        };
        if self.is_stream {
            checked.unwrap_or_else(|error| panic!("{path}: {error}\n{text}"));
        } else {
            let answer: Value = serde_json::from_slice(&self.bytes).expect("an answer in JSON");
            let choices = answer["choices"].as_array().map_or(1, Vec::len);
            assert_eq!(choices, num, "{text}");
        }
    }
}

fn num_prompts(prompt: &Value) -> usize {
    match prompt {
        Value::Array(items) if !items.iter().any(Value::is_number) => items.len(),
        _ => 1,
    }
}

/// Sends bytes as they are, and reads what comes back.
async fn speak(bytes: &[u8]) {
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let served = tokio::spawn(serve_connection(far, WORLD.server.clone()));
    let mut answer = Vec::new();
    // A server that has heard enough may hang up.
    let _ = near.write_all(bytes).await;
    let _ = near.shutdown().await;
    near.read_to_end(&mut answer).await.expect("an end");
    served.await.expect("no panic in the connection");
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1."),
        "{answer:?}"
    );
}
