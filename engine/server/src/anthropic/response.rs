//! `POST /v1/messages`: the whole response, and what it shares with the streamed one: the order
//! of content blocks.
//! It must say the same as the stream does, block by block.

use crate::answer::{ChoiceReader, End, Outcome, Piece};
use crate::generation::Generation;
use crate::http::error::ApiError;
use crate::job::{Job, dropped_call_warning};
use crate::openai::chat_response::{failed, fresh_id};
use crate::state::Shared;
use lockstep_core::Usage;
use serde_json::{Map, Value, json};

/// Reasoning is not signed here, and any signature is accepted back.
pub(crate) const SIGNATURE: &str = "unsigned";

/// What a response says about itself.
pub(crate) struct MessageHead {
    pub(crate) id: String,
    pub(crate) model_name: String,
    pub(crate) prompt_tokens: u32,
    pub(crate) seed: u64,
    pub(crate) warnings: Vec<Value>,
    pub(crate) request_id: String,
}

impl MessageHead {
    pub(crate) fn new(
        shared: &Shared,
        job: &Job,
        request_id: &str,
    ) -> Result<MessageHead, ApiError> {
        let prompt = job.prompts.first().map_or(0, Vec::len);
        Ok(MessageHead {
            id: fresh_id("msg_")?,
            model_name: shared.model_name().to_string(),
            prompt_tokens: u32::try_from(prompt).unwrap_or(u32::MAX),
            seed: job.seed(0),
            warnings: job.warnings.clone(),
            request_id: request_id.to_string(),
        })
    }

    /// The message with this content.
    pub(crate) fn message(&self, content: Vec<Value>) -> Map<String, Value> {
        let fields = [
            ("id", json!(self.id)),
            ("type", json!("message")),
            ("role", json!("assistant")),
            ("model", json!(self.model_name)),
            ("content", Value::Array(content)),
            ("stop_reason", Value::Null),
            ("stop_sequence", Value::Null),
            ("seed", json!(self.seed)),
        ];
        fields
            .map(|(name, value)| (name.to_string(), value))
            .into_iter()
            .collect()
    }

    /// The id of a call, the same in both kinds of response.
    pub(crate) fn call_id(&self, index: u32) -> String {
        let own = self.id.trim_start_matches("msg_");
        format!("toolu_{own}{index:02x}")
    }
}

/// `stop_reason` and `stop_sequence` of an end.
pub(crate) fn stop(end: &End) -> (Value, Value) {
    match end {
        End::Stop => (json!("end_turn"), Value::Null),
        End::StopString(text) => (json!("stop_sequence"), json!(text)),
        End::Length => (json!("max_tokens"), Value::Null),
        End::ToolCalls => (json!("tool_use"), Value::Null),
        End::Failed(_) => (Value::Null, Value::Null),
    }
}

/// `usage`: tokens that the cache held are counted apart.
pub(crate) fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    })
}

/// What happens to content blocks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BlockEvent {
    StartThinking,
    StartText,
    StartCall { index: u32, name: String },
    Thinking(String),
    Text(String),
    Json(String),
    Stop,
}

/// Which block is open.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Open {
    None,
    Thinking,
    Text,
    Call,
}

/// Turns pieces into blocks: one is open at a time, and each that starts is stopped.
#[derive(Debug)]
pub(crate) struct Blocks {
    open: Open,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        Blocks { open: Open::None }
    }

    /// Whether reasoning is open.
    pub(crate) fn in_thinking(&self) -> bool {
        self.open == Open::Thinking
    }

    pub(crate) fn piece(&mut self, piece: Piece, mut emit: impl FnMut(BlockEvent)) {
        let mut stop = |open: &mut Open| {
            if *open != Open::None {
                emit(BlockEvent::Stop);
            }
            *open = Open::None;
        };
        match piece {
            Piece::Token { .. } => {}
            Piece::Reasoning(text) => {
                if self.open != Open::Thinking {
                    stop(&mut self.open);
                    self.open = Open::Thinking;
                    emit(BlockEvent::StartThinking);
                }
                emit(BlockEvent::Thinking(text));
            }
            Piece::Content(text) => {
                if self.open != Open::Text {
                    stop(&mut self.open);
                    self.open = Open::Text;
                    emit(BlockEvent::StartText);
                }
                emit(BlockEvent::Text(text));
            }
            Piece::CallBegin { index, name } => {
                stop(&mut self.open);
                self.open = Open::Call;
                emit(BlockEvent::StartCall { index, name });
            }
            Piece::CallArguments { fragment, .. } => emit(BlockEvent::Json(fragment)),
            Piece::CallEnd { .. } | Piece::End(_) => stop(&mut self.open),
        }
    }
}

/// A block as it grows.
enum Grown {
    Thinking(String),
    Text(String),
    Call {
        index: u32,
        name: String,
        json: String,
    },
}

/// Waits for the whole answer.
pub(crate) async fn collect(
    mut generation: Generation,
    head: MessageHead,
) -> Result<Value, ApiError> {
    let mut reader = ChoiceReader::new(true);
    let mut blocks = Blocks::new();
    let mut grown: Vec<Grown> = Vec::new();
    let mut outcome: Option<Outcome> = None;
    // A call counts once its end was seen.
    let mut calls_whole = Vec::new();
    let mut pieces = Vec::new();
    while let Some((_, update)) = generation.next().await {
        reader.read(update, &mut pieces);
        for piece in pieces.drain(..) {
            match &piece {
                Piece::CallEnd { index } => calls_whole.push(*index),
                Piece::End(end) => outcome = Some(end.clone()),
                _ => {}
            }
            blocks.piece(piece, |event| grow(&mut grown, event));
        }
    }
    let content = content(&grown, &head, &calls_whole);
    let Some(outcome) = outcome else {
        return Err(ApiError::new(
            500,
            "engine_stopped",
            "the answer never ended",
        ));
    };
    let mut message = head.message(content);
    if let End::Failed(failure) = &outcome.end {
        return Err(failed(failure, Value::Object(message)));
    }
    let (reason, sequence) = stop(&outcome.end);
    message.insert("stop_reason".to_string(), reason);
    message.insert("stop_sequence".to_string(), sequence);
    message.insert("usage".to_string(), usage(&outcome.usage));
    let mut warnings = head.warnings;
    if outcome.dropped_call {
        warnings.push(dropped_call_warning(0));
    }
    if !warnings.is_empty() {
        message.insert("warnings".to_string(), Value::Array(warnings));
    }
    Ok(Value::Object(message))
}

fn grow(grown: &mut Vec<Grown>, event: BlockEvent) {
    match (event, grown.last_mut()) {
        (BlockEvent::StartThinking, _) => grown.push(Grown::Thinking(String::new())),
        (BlockEvent::StartText, _) => grown.push(Grown::Text(String::new())),
        (BlockEvent::StartCall { index, name }, _) => grown.push(Grown::Call {
            index,
            name,
            json: String::new(),
        }),
        (BlockEvent::Thinking(text), Some(Grown::Thinking(all))) => all.push_str(&text),
        (BlockEvent::Text(text), Some(Grown::Text(all))) => all.push_str(&text),
        (BlockEvent::Json(text), Some(Grown::Call { json, .. })) => json.push_str(&text),
        _ => {}
    }
}

fn content(grown: &[Grown], head: &MessageHead, calls_whole: &[u32]) -> Vec<Value> {
    let mut content = Vec::with_capacity(grown.len());
    for block in grown {
        match block {
            Grown::Thinking(text) => content.push(json!({
                "type": "thinking",
                "thinking": text,
                "signature": SIGNATURE,
            })),
            Grown::Text(text) => content.push(json!({"type": "text", "text": text})),
            Grown::Call { index, name, json } => {
                let input: Option<Value> = serde_json::from_str(json).ok();
                if let (Some(input), true) = (input, calls_whole.contains(index)) {
                    content.push(json!({
                        "type": "tool_use",
                        "id": head.call_id(*index),
                        "name": name,
                        "input": input,
                    }));
                }
            }
        }
    }
    content
}
