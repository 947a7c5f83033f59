//! What came back, read: the model's answer, or why it is none. It must never take a response that is no model
//! output for an answer, whatever its status says.

use super::plan::Route;
use serde::{Deserialize, Serialize};

mod anthropic;
mod openai;

/// A whole exchange, as it came over the wire.
#[derive(Clone, Debug)]
pub struct Raw {
    /// The status; none if no head of a response came.
    pub status: Option<u16>,
    /// The body as far as it came.
    pub body: Vec<u8>,
    /// What broke the connection off, or kept it from beginning.
    pub broken: Option<String>,
}

/// Why a response is no model output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidKind {
    /// No connection, a timeout, or a connection that broke off.
    Transport,
    /// An error in the API's own form.
    ErrorAnswer,
    /// A status other than 200 without the API's form: a proxy's page.
    HttpStatus,
    /// A body that is neither JSON nor a stream of events.
    OtherBody,
    /// JSON of another shape.
    OtherShape,
    /// A stream without its end.
    BrokenStream,
}

impl InvalidKind {
    /// As it is written in results and reports.
    pub fn name(self) -> &'static str {
        match self {
            InvalidKind::Transport => "transport",
            InvalidKind::ErrorAnswer => "error_answer",
            InvalidKind::HttpStatus => "http_status",
            InvalidKind::OtherBody => "other_body",
            InvalidKind::OtherShape => "other_shape",
            InvalidKind::BrokenStream => "broken_stream",
        }
    }
}

/// A response that is no model output.
#[derive(Clone, Debug, PartialEq)]
pub struct Invalid {
    /// Which kind.
    pub kind: InvalidKind,
    /// In words.
    pub what: String,
}

impl Invalid {
    fn new(kind: InvalidKind, what: impl Into<String>) -> Invalid {
        let what = what.into();
        Invalid { kind, what }
    }
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// By itself, or at a stop string.
    Stop,
    /// At the token limit.
    Length,
    /// With calls.
    Calls,
    /// For another reason, by its name.
    Other(String),
}

impl Finish {
    /// As it is written in results.
    pub fn name(&self) -> &str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Calls => "calls",
            Finish::Other(name) => name,
        }
    }
}

/// A call as the server gave it. What is missing is none; arguments are text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its id.
    pub id: Option<String>,
    /// The tool's name.
    pub name: Option<String>,
    /// The arguments as they were written.
    pub arguments: Option<String>,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The answer's text.
    pub content: String,
    /// The reasoning before it.
    pub reasoning: String,
    /// Calls in their order.
    pub calls: Vec<Call>,
    /// Why it stopped.
    pub finish: Finish,
    /// What the server could not read of the model's call, by its code and in words.
    pub refused: Option<(String, String)>,
}

/// Reads a response.
///
/// # Errors
/// Why it is no model output.
pub fn read(route: Route, stream: bool, raw: &Raw) -> Result<Reply, Invalid> {
    let text = String::from_utf8_lossy(&raw.body);
    let Some(status) = raw.status else {
        let what = raw.broken.clone().unwrap_or_default();
        return Err(Invalid::new(InvalidKind::Transport, what));
    };
    if status != 200 {
        return error_status(status, &text);
    }
    if stream {
        return read_stream(route, raw);
    }
    if let Some(what) = &raw.broken {
        return Err(Invalid::new(InvalidKind::Transport, what.clone()));
    }
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        let what = format!("no JSON ({error}): {}", beginning(&text));
        Invalid::new(InvalidKind::OtherBody, what)
    })?;
    if let Some(error) = json.get("error").filter(|error| error.is_object()) {
        return refusal(error, "");
    }
    match route {
        Route::OpenAi => openai::whole(&json),
        Route::Anthropic => anthropic::whole(&json),
    }
}

fn error_status(status: u16, text: &str) -> Result<Reply, Invalid> {
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    match json
        .get("error")
        .filter(|error| error["message"].is_string())
    {
        Some(error) => refusal(error, &format!("status {status}: ")),
        None => {
            let what = format!("status {status}: {}", beginning(text));
            Err(Invalid::new(InvalidKind::HttpStatus, what))
        }
    }
}

/// An error in the API's form. That the model's call could not be read is an answer: a malformed one.
fn refusal(error: &serde_json::Value, before: &str) -> Result<Reply, Invalid> {
    let code = error["code"].as_str().or(error["type"].as_str());
    let (code, message) = (code.unwrap_or("error"), error["message"].as_str());
    let what = format!("{before}{code}: {}", message.unwrap_or("no message"));
    if !is_refused_call(code) {
        return Err(Invalid::new(InvalidKind::ErrorAnswer, what));
    }
    Ok(Reply {
        content: String::new(),
        reasoning: String::new(),
        calls: Vec::new(),
        finish: Finish::Other("error".to_owned()),
        refused: Some((code.to_owned(), what)),
    })
}

/// Whether an error says that the model's call could not be read, as `lockstep serve` names these.
fn is_refused_call(code: &str) -> bool {
    use lockstep_tags::TagErrorKind as Kind;
    let kinds = [
        Kind::UnterminatedToolCall,
        Kind::MalformedCall,
        Kind::MalformedJson,
        Kind::BadValue,
        Kind::UnknownTool,
        Kind::ArgumentsNotObject,
        Kind::DuplicateParameter,
        Kind::BadCallId,
        Kind::BadMessageHeader,
    ];
    kinds.iter().any(|kind| kind.as_str() == code)
}

fn read_stream(route: Route, raw: &Raw) -> Result<Reply, Invalid> {
    let text = String::from_utf8_lossy(&raw.body);
    let mut events = crate::client::events::Events::new(&raw.body[..]);
    let broken = |what: String| Invalid::new(InvalidKind::BrokenStream, what);
    let mut data = Vec::new();
    let mut cut = raw.broken.clone();
    loop {
        match events.next_event() {
            Ok(Some(event)) => data.push(event),
            Ok(None) => break,
            Err(fault) => {
                cut = cut.or(Some(fault.message));
                break;
            }
        }
    }
    if data.is_empty() {
        let is_stream = text.trim().is_empty() || text.starts_with(':') || cut.is_some();
        let is_other = text.trim_start().starts_with(['<', '{', '[']);
        return Err(match is_stream && !is_other {
            true => broken(cut.unwrap_or_else(|| "it has no events".to_owned())),
            false => {
                let what = format!("no stream of events: {}", beginning(&text));
                Invalid::new(InvalidKind::OtherBody, what)
            }
        });
    }
    let read = match route {
        Route::OpenAi => openai::stream(&data),
        Route::Anthropic => anthropic::stream(&data),
    };
    match (read, cut) {
        (Err(invalid), Some(cut)) if invalid.kind == InvalidKind::BrokenStream => {
            Err(broken(format!("{}; {cut}", invalid.what)))
        }
        // What follows the end of the API's own stream is part of no answer.
        (read, _) => read,
    }
}

fn shape(what: impl Into<String>) -> Invalid {
    Invalid::new(InvalidKind::OtherShape, what)
}

fn beginning(text: &str) -> String {
    let line = text.trim().chars().take(120).collect::<String>();
    format!("{line:?}")
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
