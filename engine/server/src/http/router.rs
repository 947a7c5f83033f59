//! Which request goes where, and what all of them have in common: the request's id, the API key,
//! errors in the shape of the API that was spoken.
//! No route may answer without passing here.

use crate::http::auth;
use crate::http::body::read_json;
use crate::http::error::{Api, ApiError, json_response};
use crate::state::Shared;
use crate::{anthropic, captures, openai};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::{Value, json};
use std::sync::Arc;

/// Routes and what they are for, as the page lists them.
const ROUTES: &[(&str, &str, &str)] = &[
    (
        "POST",
        "/v1/chat/completions",
        "OpenAI chat, whole or streamed",
    ),
    ("POST", "/v1/completions", "OpenAI plain completion"),
    (
        "POST",
        "/v1/messages",
        "Anthropic messages, whole or streamed",
    ),
    (
        "POST",
        "/v1/messages/count_tokens",
        "tokens of a conversation",
    ),
    ("POST", "/tokenize", "text or messages to tokens"),
    ("POST", "/detokenize", "tokens to text"),
    ("GET", "/v1/models", "what is served"),
    ("GET", "/health", "whether it is alive"),
    ("GET", "/ready", "whether it takes work"),
    ("GET", "/metrics", "Prometheus metrics"),
    ("GET", "/version", "which program this is"),
    (
        "GET",
        "/captures/{x-request-id}",
        "what was recorded of a request, for holders of the admin key",
    ),
];

/// Routes that anybody may see, key or not.
const OPEN: &[&str] = &["/health", "/ready", "/metrics"];

/// Where captures are: their own keys open it.
const CAPTURES: &str = "/captures/{id}";

/// Routes whose responses are part of a capture.
const GENERATING: &[&str] = &["/v1/chat/completions", "/v1/completions", "/v1/messages"];

/// The id that a response carries, and which API the client speaks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) request_id: String,
    pub(crate) api: Api,
}

type App = State<Arc<Shared>>;

/// All routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/version", get(version))
        .route(CAPTURES, get(capture))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(shared.clone(), around))
        .with_state(shared)
}

/// What happens around each request.
async fn around(State(shared): App, mut request: Request, next: Next) -> Response<Body> {
    let path = request.uri().path().to_string();
    let caller = match Caller::new(request.headers(), &path) {
        Ok(caller) => caller,
        Err(error) => return error.response(Api::OpenAi, ""),
    };
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("none", MatchedPath::as_str).to_string();
    let is_open = OPEN.contains(&path.as_str()) || route == CAPTURES;
    let allowed = match is_open {
        true => Ok(()),
        false => auth::check(&shared.config.api_keys, request.headers()),
    };
    let mut response = match allowed {
        Ok(()) => {
            request.extensions_mut().insert(caller.clone());
            next.run(request).await
        }
        Err(error) => refuse(&shared, &caller, &error),
    };
    if let Some(captures) = &shared.config.captures
        && GENERATING.contains(&route.as_str())
    {
        response = captures::tapped(&captures.recorder, &caller.request_id, response);
    }
    let status = response.status().as_u16();
    let labels = format!("route=\"{route}\",status=\"{status}\"");
    shared
        .metrics
        .count("lockstep_http_responses_total", &labels, 1);
    if let Ok(id) = HeaderValue::from_str(&caller.request_id) {
        response.headers_mut().insert("x-request-id", id.clone());
        if caller.api == Api::Anthropic {
            // Where Anthropic's own clients look for it.
            response.headers_mut().insert("request-id", id);
        }
    }
    response
}

impl Caller {
    fn new(headers: &HeaderMap, path: &str) -> Result<Caller, ApiError> {
        let given = headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let fine = |id: &&str| {
            (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let request_id = match given.filter(fine) {
            Some(id) => id.to_string(),
            None => openai::chat_response::fresh_id("req_")?,
        };
        let anthropic =
            path.starts_with("/v1/messages") || headers.contains_key("anthropic-version");
        let api = if anthropic {
            Api::Anthropic
        } else {
            Api::OpenAi
        };
        Ok(Caller { request_id, api })
    }
}

fn refuse(shared: &Shared, caller: &Caller, error: &ApiError) -> Response<Body> {
    let labels = format!("code=\"{}\"", error.code);
    shared.metrics.count("lockstep_refused_total", &labels, 1);
    tracing::debug!(
        request = caller.request_id,
        code = error.code,
        "{}",
        error.message
    );
    error.response(caller.api, &caller.request_id)
}

fn finish(
    shared: &Shared,
    caller: &Caller,
    result: Result<Response<Body>, ApiError>,
) -> Response<Body> {
    result.unwrap_or_else(|error| refuse(shared, caller, &error))
}

async fn body(shared: &Shared, request: Request) -> Result<Value, ApiError> {
    let (parts, body) = request.into_parts();
    read_json(&shared.config.limits, &parts.headers, body).await
}

async fn chat(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let result = match body(&shared, request).await {
        Ok(body) => openai::chat_request::answer(&shared, &caller.request_id, &body).await,
        Err(error) => Err(error),
    };
    finish(&shared, &caller, result)
}

async fn completions(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let result = match body(&shared, request).await {
        Ok(body) => openai::completions::answer(&shared, &caller.request_id, &body).await,
        Err(error) => Err(error),
    };
    finish(&shared, &caller, result)
}

async fn messages(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let result = match body(&shared, request).await {
        Ok(body) => anthropic::request::answer(&shared, &caller.request_id, &body).await,
        Err(error) => Err(error),
    };
    finish(&shared, &caller, result)
}

async fn count_tokens(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let result = body(&shared, request).await;
    let result = result.and_then(|body| anthropic::request::count_tokens(&shared, &body));
    finish(
        &shared,
        &caller,
        result.map(|body| json_response(200, &body)),
    )
}

async fn tokenize(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let result = body(&shared, request).await;
    let result = result.and_then(|body| openai::tokens::tokenize(&shared, &body));
    finish(
        &shared,
        &caller,
        result.map(|body| json_response(200, &body)),
    )
}

async fn detokenize(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let result = body(&shared, request).await;
    let result = result.and_then(|body| openai::tokens::detokenize(&shared, &body));
    finish(
        &shared,
        &caller,
        result.map(|body| json_response(200, &body)),
    )
}

async fn models(State(shared): App) -> Response<Body> {
    json_response(200, &openai::models::list(&shared))
}

async fn model(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    let result = match id {
        Ok(Path(id)) => openai::models::get(&shared, &id),
        Err(_) => {
            let message = "the name of the model in the path is not UTF-8";
            Err(ApiError::new(400, "invalid_utf8", message))
        }
    };
    finish(
        &shared,
        &caller,
        result.map(|body| json_response(200, &body)),
    )
}

async fn health(State(shared): App) -> Response<Body> {
    match shared.status.stopped() {
        None => json_response(200, &json!({"status": "ok"})),
        Some(reason) => json_response(503, &json!({"status": "stopped", "reason": reason})),
    }
}

async fn ready(State(shared): App) -> Response<Body> {
    match (shared.status.stopped(), shared.status.is_draining()) {
        (None, false) => json_response(200, &json!({"status": "ready"})),
        (None, true) => json_response(503, &json!({"status": "draining"})),
        (Some(reason), _) => json_response(503, &json!({"status": "stopped", "reason": reason})),
    }
}

async fn metrics(State(shared): App) -> Response<Body> {
    let healthy = shared.status.stopped().is_none();
    if let Some(captures) = &shared.config.captures {
        let lost = captures.archive.num_lost();
        shared
            .metrics
            .set("lockstep_capture_records_lost", "", lost as f64);
    }
    let page = shared.metrics.render_with(healthy);
    text(page, "text/plain; version=0.0.4; charset=utf-8")
}

async fn capture(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    let result = match id {
        Ok(Path(id)) => captures::answer(&shared, &headers, &id).await,
        Err(_) => {
            let message = "the request's id in the path is not UTF-8";
            Err(ApiError::new(400, "invalid_utf8", message))
        }
    };
    finish(&shared, &caller, result)
}

async fn version() -> Response<Body> {
    let version = env!("CARGO_PKG_VERSION");
    json_response(200, &json!({"name": "lockstep", "version": version}))
}

async fn page(State(shared): App) -> Response<Body> {
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let routes: String = ROUTES
        .iter()
        .map(|(method, path, what)| format!("<tr><td>{method}<td><code>{path}</code><td>{what}\n"))
        .collect();
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>Lockstep</title>\
         <style>body{{font:16px sans-serif;margin:3em}}td{{padding:.2em 1em .2em 0}}</style>\n\
         <h1>Lockstep {}</h1>\n<p>Serves <code>{}</code>, up to {} tokens.</p>\n\
         <table>\n{routes}</table>\n",
        env!("CARGO_PKG_VERSION"),
        escaped(shared.model_name()),
        shared.backend.seq_len_max,
    );
    text(page, "text/html; charset=utf-8")
}

fn text(body: String, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn not_found(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let path = request.uri().path();
    let message = match path {
        "/v1/responses" => "/v1/responses is not served yet, use /v1/chat/completions".to_string(),
        _ => format!("there is no route {path:?}; / lists what there is"),
    };
    refuse(
        &shared,
        &caller,
        &ApiError::new(404, "unknown_route", message),
    )
}

async fn wrong_method(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response<Body> {
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let known = ROUTES.iter().find(|route| path == route.1);
    let expected = known.map_or("GET", |route| route.0);
    let message = format!("{path} was asked with {method}, expected {expected}");
    let mut response = refuse(
        &shared,
        &caller,
        &ApiError::new(405, "wrong_method", message),
    );
    let allow = if expected == "POST" {
        Method::POST
    } else {
        Method::GET
    };
    if let Ok(value) = HeaderValue::from_str(allow.as_str()) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}
