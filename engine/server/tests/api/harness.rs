//! A server, a client, and streams folded into what they say.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use lockstep_core::{Engine, EngineConfig};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig, Script};
use lockstep_package::Package;
use lockstep_server::automaton::{StreamData, events};
use lockstep_server::{
    ChatModel, ChatPrompt, ModelContract, ModelError, Server, ServerConfig, serve_connection,
    vocabulary,
};
use lockstep_step::{Backend, BackendLimits, TokenId};
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub fn model() -> Arc<Package> {
    static MODEL: OnceLock<Arc<Package>> = OnceLock::new();
    let model = MODEL.get_or_init(|| Arc::new(Package::embedded().expect("the embedded model")));
    model.clone()
}

/// Tokens of a text in which tags count as such.
pub fn tokens(text: &str) -> Vec<TokenId> {
    ChatModel::encode_text(model().as_ref(), text, true).expect("tokens")
}

/// How a server is set up.
pub struct Setup {
    pub config: ServerConfig,
    pub engine: EngineConfig,
    pub backend: FingerprintConfig,
}

impl Setup {
    pub fn new() -> Setup {
        let limits = BackendLimits {
            vocab_size: ChatModel::contract(model().as_ref()).vocab_size,
            num_blocks: 64,
            num_rows: 64,
            seq_len_max: 2048,
            query_tokens_max: 512,
        };
        Setup {
            config: ServerConfig::new("tiny"),
            engine: EngineConfig {
                checked: true,
                ..EngineConfig::default()
            },
            backend: FingerprintConfig::new(limits),
        }
    }

    /// A server whose model says this, whatever it is asked.
    pub fn says(output: &str) -> Setup {
        let mut setup = Setup::new();
        setup.backend.scripts = vec![Script {
            when: Vec::new(),
            output: tokens(output),
        }];
        setup
    }

    pub fn start(self) -> TestServer {
        let backend = Fingerprint::new(self.backend.clone());
        self.start_with(backend)
    }

    /// A server whose model promises something else than it is.
    pub fn start_as(self, contract: impl FnOnce(&mut ModelContract)) -> TestServer {
        let mut promised = ChatModel::contract(model().as_ref());
        contract(&mut promised);
        let words = Arc::new(vocabulary(model().as_ref()));
        let engine = Engine::new(self.engine, self.backend.limits, words).expect("an engine");
        let model = Arc::new(Promising(promised));
        let backend = Fingerprint::new(self.backend);
        let server = Server::new(self.config, model, engine, backend).expect("a server");
        TestServer { server }
    }

    /// A server over a backend of the test's own.
    pub fn start_with<B>(self, backend: B) -> TestServer
    where
        B: Backend + Send + 'static,
        B::Forward: Send,
    {
        let words = Arc::new(vocabulary(model().as_ref()));
        let engine = Engine::new(self.engine, self.backend.limits, words).expect("an engine");
        let server = Server::new(self.config, model(), engine, backend).expect("a server");
        TestServer { server }
    }
}

/// The embedded model with promises of a test's own.
struct Promising(ModelContract);

impl ChatModel for Promising {
    fn contract(&self) -> ModelContract {
        self.0.clone()
    }

    fn encode_chat(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
    ) -> Result<ChatPrompt, ModelError> {
        ChatModel::encode_chat(model().as_ref(), messages, tools, kwargs)
    }

    fn encode_text(&self, text: &str, as_prompt: bool) -> Result<Vec<TokenId>, ModelError> {
        ChatModel::encode_text(model().as_ref(), text, as_prompt)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        static MODEL: OnceLock<Arc<Package>> = OnceLock::new();
        ChatModel::token_bytes(MODEL.get_or_init(model).as_ref(), token)
    }

    fn is_special(&self, token: TokenId) -> bool {
        ChatModel::is_special(model().as_ref(), token)
    }
}

pub struct TestServer {
    pub server: Server,
}

/// A whole response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.bytes);
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl TestServer {
    /// A connection with so many bytes between both ends.
    pub async fn connect(&self, buffer_bytes: usize) -> SendRequest<Full<Bytes>> {
        let (near, far) = tokio::io::duplex(buffer_bytes);
        tokio::spawn(serve_connection(far, self.server.clone()));
        let (sender, connection) = handshake(TokioIo::new(near)).await.expect("a handshake");
        tokio::spawn(connection);
        sender
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let mut sender = self.connect(1 << 16).await;
        sender.send_request(request).await.expect("a response")
    }

    pub async fn ask(&self, request: Request<Full<Bytes>>) -> Answer {
        read(self.send(request).await).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        let request = Request::get(path).body(Full::default());
        self.ask(request.expect("a request")).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(post(path, body)).await
    }

    /// The value of a metric, all labels added up.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.server.handle().metrics();
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let value = rest.split_once("} ")?.1;
            rest.starts_with('{')
                .then(|| value.parse::<f64>().expect("a number"))
        });
        values.sum()
    }

    /// Waits until a metric has a value. It hangs, and is then killed, if it never has.
    pub async fn wait_for(&self, name: &str, value: f64) {
        let wait = async {
            while self.metric(name) != value {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
        waited.unwrap_or_else(|_| panic!("{name} is {}, not {value}", self.metric(name)));
    }
}

pub async fn read(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        bytes,
    }
}

pub fn post(path: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::post(path)
        .header("content-type", "application/json")
        .body(Full::from(body.to_string()))
        .expect("a request")
}

/// A body with fields replaced.
pub fn with(body: &Value, fields: Value) -> Value {
    let mut body = body.clone();
    let fields = fields.as_object().expect("fields").clone();
    body.as_object_mut().expect("a body").extend(fields);
    body
}

pub fn hello() -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": "hello"}]})
}

/// One tool, for questions about the weather.
pub fn weather_tools() -> Value {
    json!([{"type": "function", "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
        }},
    }}])
}

pub const WEATHER_CALL: &str = "Let me look.</think>On it.<tool_call>weather\
    <arg_key>city</arg_key><arg_value>Paris</arg_value>\
    <arg_key>days</arg_key><arg_value>3</arg_value></tool_call><|observation|>";

/// What a chat stream says: its choices as in a whole response, usage, and the error if there is
/// one.
pub fn fold_chat(bytes: &[u8]) -> Value {
    let mut choices: Vec<Value> = Vec::new();
    let (mut usage, mut error, mut seed) = (Value::Null, Value::Null, Value::Null);
    let mut warnings = Vec::new();
    for event in events(bytes).expect("events") {
        let StreamData::Json(chunk) = event.data else {
            continue;
        };
        if let Some(found) = chunk.get("error") {
            error = found.clone();
            continue;
        }
        warnings.extend(chunk["warnings"].as_array().into_iter().flatten().cloned());
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
        if chunk["seed"].is_number() {
            seed = chunk["seed"].clone();
        }
        for part in chunk["choices"].as_array().expect("choices") {
            let idx = part["index"].as_u64().expect("an index") as usize;
            while choices.len() <= idx {
                choices.push(json!({"index": choices.len(), "message": {}, "logprobs": null}));
            }
            fold_choice(&mut choices[idx], part);
        }
    }
    json!({
        "choices": choices, "usage": usage, "error": error, "seed": seed, "warnings": warnings,
    })
}

fn fold_choice(choice: &mut Value, part: &Value) {
    let message = choice["message"].as_object_mut().expect("a message");
    for (name, value) in part["delta"].as_object().expect("a delta") {
        match (name.as_str(), value) {
            ("tool_calls", calls) => fold_calls(message, &calls[0]),
            ("content" | "reasoning" | "reasoning_content", Value::String(text)) => {
                let all = message.entry(name).or_insert(Value::Null);
                *all = json!(all.as_str().unwrap_or("").to_string() + text);
            }
            _ => drop(message.entry(name).or_insert_with(|| value.clone())),
        }
    }
    if let Some(entries) = part["logprobs"]["content"].as_array() {
        if choice["logprobs"].is_null() {
            choice["logprobs"] = json!({"content": [], "refusal": null});
        }
        let all = choice["logprobs"]["content"].as_array_mut();
        all.expect("an array").extend(entries.iter().cloned());
    }
    for name in ["finish_reason", "stop_reason", "seed"] {
        if let Some(value) = part.get(name).filter(|value| !value.is_null()) {
            choice[name] = value.clone();
        }
    }
}

fn fold_calls(message: &mut Map<String, Value>, call: &Value) {
    let calls = message.entry("tool_calls").or_insert_with(|| json!([]));
    let calls = calls.as_array_mut().expect("calls");
    let idx = call["index"].as_u64().expect("an index") as usize;
    if idx == calls.len() {
        let mut call = call.clone();
        call.as_object_mut().expect("a call").remove("index");
        calls.push(call);
    } else {
        let arguments = &mut calls[idx]["function"]["arguments"];
        let more = call["function"]["arguments"].as_str().expect("arguments");
        *arguments = json!(arguments.as_str().unwrap_or("").to_string() + more);
    }
}

/// A whole response in the shape of a folded stream.
pub fn as_folded(response: &Value) -> Value {
    let mut choices = response["choices"].clone();
    for choice in choices.as_array_mut().expect("choices") {
        let fields = choice.as_object_mut().expect("a choice");
        if fields["stop_reason"].is_null() {
            fields.remove("stop_reason");
        }
        if let Some(message) = choice["message"].as_object_mut() {
            message.remove("refusal");
        }
    }
    json!({
        "choices": choices,
        "usage": response["usage"],
        "error": null,
        "seed": response["seed"],
        "warnings": response.get("warnings").cloned().unwrap_or_else(|| json!([])),
    })
}

/// An answer with its usage as if nothing had been found in the prefix cache: the one number that what ran
/// before may change.
pub fn uncached(mut answer: Value) -> Value {
    let usage = &mut answer["usage"];
    if let Some(details) = usage.get_mut("prompt_tokens_details") {
        details["cached_tokens"] = json!(0);
    }
    let found = usage.get("cache_read_input_tokens").and_then(Value::as_u64);
    if let (Some(found), Some(input)) = (found, usage["input_tokens"].as_u64()) {
        usage["input_tokens"] = json!(input + found);
        usage["cache_read_input_tokens"] = json!(0);
    }
    answer
}

/// Replaces ids of calls, which are drawn per response.
pub fn without_ids(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            if map.contains_key("id") {
                map.insert("id".to_string(), json!("id"));
            }
            map.values_mut()
                .for_each(|inner| *inner = without_ids(inner.take()));
        }
        Value::Array(items) => {
            items
                .iter_mut()
                .for_each(|inner| *inner = without_ids(inner.take()));
        }
        _ => {}
    }
    value
}
