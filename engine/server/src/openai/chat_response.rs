//! `POST /v1/chat/completions`: the whole response, and what it shares with the streamed one.
//! It must say the same as the stream does, piece by piece.

use crate::answer::{ChoiceReader, End, Failure, Outcome, Piece};
use crate::generation::Generation;
use crate::http::error::ApiError;
use crate::job::{Job, dropped_call_warning};
use crate::model::ChatModel;
use crate::openai::logprobs::chat_entry;
use crate::state::Shared;
use lockstep_core::Usage;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What every chunk of a response says.
pub(crate) struct ChatHead {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model_name: String,
    pub(crate) model: Arc<dyn ChatModel>,
    /// By choice.
    pub(crate) seeds: Vec<u64>,
    pub(crate) warnings: Vec<Value>,
    pub(crate) wants_logprobs: bool,
}

impl ChatHead {
    pub(crate) fn new(
        shared: &Shared,
        job: &Job,
        wants_logprobs: bool,
    ) -> Result<ChatHead, ApiError> {
        Ok(ChatHead {
            id: fresh_id("chatcmpl-")?,
            created: crate::time::unix_seconds(),
            model_name: shared.model_name().to_string(),
            model: shared.model.clone(),
            seeds: (0..job.num_choices())
                .map(|choice| job.seed(choice))
                .collect(),
            warnings: job.warnings.clone(),
            wants_logprobs,
        })
    }

    pub(crate) fn object(&self, kind: &str) -> Map<String, Value> {
        let fields = [
            ("id", json!(self.id)),
            ("object", json!(kind)),
            ("created", json!(self.created)),
            ("model", json!(self.model_name)),
            ("system_fingerprint", json!(fingerprint())),
        ];
        fields
            .map(|(name, value)| (name.to_string(), value))
            .into_iter()
            .collect()
    }

    /// The id of a call, the same in both kinds of response.
    pub(crate) fn call_id(&self, choice: usize, index: u32) -> String {
        let own = self.id.rsplit('-').next().unwrap_or_default();
        format!("call_{own}{choice:02x}{index:02x}")
    }
}

/// An id of 128 random bits behind a prefix.
pub(crate) fn fresh_id(prefix: &str) -> Result<String, ApiError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        ApiError::new(500, "no_randomness", format!("can't make an id: {error}"))
    })?;
    Ok(format!("{prefix}{:032x}", u128::from_le_bytes(bytes)))
}

/// Which program computed the answer.
pub(crate) fn fingerprint() -> &'static str {
    concat!("lockstep-", env!("CARGO_PKG_VERSION"))
}

/// `usage`, of all choices together; a prompt counts once.
pub(crate) fn usage(usages: &[Usage], prompts: usize) -> Value {
    let sum =
        |of: fn(&Usage) -> u32| -> u64 { usages.iter().map(|usage| u64::from(of(usage))).sum() };
    // Choices of one prompt are neighbours; each prompt is counted with its first choice.
    let per_prompt = (usages.len() / prompts.max(1)).max(1);
    let firsts = || usages.iter().step_by(per_prompt);
    let prompt: u64 = firsts().map(|usage| u64::from(usage.prompt_tokens)).sum();
    let cached: u64 = firsts().map(|usage| u64::from(usage.cached_tokens)).sum();
    let completion = sum(|usage| usage.completion_tokens);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": sum(|usage| usage.reasoning_tokens)},
    })
}

/// `finish_reason` of an end.
pub(crate) fn finish_reason(end: &End) -> &'static str {
    match end {
        End::Stop | End::StopString(_) => "stop",
        End::Length => "length",
        End::ToolCalls => "tool_calls",
        End::Failed(_) => "error",
    }
}

/// The stop string that ended the answer, where one did.
pub(crate) fn stop_reason(end: &End) -> Value {
    match end {
        End::StopString(text) => json!(text),
        _ => Value::Null,
    }
}

/// The error of a whole response: what came before it stands in it.
pub(crate) fn failed(failure: &Failure, partial: Value) -> ApiError {
    ApiError {
        partial: Some(Box::new(partial)),
        ..failure.error()
    }
}

/// One choice as it grows.
#[derive(Default)]
struct Choice {
    reasoning: Option<String>,
    content: Option<String>,
    calls: Vec<Call>,
    logprobs: Vec<Value>,
    outcome: Option<Outcome>,
}

struct Call {
    index: u32,
    name: String,
    arguments: String,
    whole: bool,
}

impl Choice {
    fn push(&mut self, head: &ChatHead, piece: Piece) {
        match piece {
            Piece::Token {
                bytes, logprobs, ..
            } => {
                if let Some(logprobs) = logprobs.filter(|_| !bytes.is_empty()) {
                    let entry = chat_entry(head.model.as_ref(), &bytes, &logprobs);
                    self.logprobs.push(entry);
                }
            }
            Piece::Reasoning(text) => self.reasoning.get_or_insert_default().push_str(&text),
            Piece::Content(text) => self.content.get_or_insert_default().push_str(&text),
            Piece::CallBegin { index, name } => self.calls.push(Call {
                index,
                name,
                arguments: String::new(),
                whole: false,
            }),
            Piece::CallArguments { index, fragment } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.index == index) {
                    call.arguments.push_str(&fragment);
                }
            }
            Piece::CallEnd { index } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.index == index) {
                    call.whole = true;
                }
            }
            Piece::End(outcome) => {
                #[cfg(planted)]
                self.split_at_the_last();
                self.outcome = Some(outcome);
            }
        }
    }

    // Planted: kekzl/imp#793.
    #[cfg(planted)]
    fn split_at_the_last(&mut self) {
        let content = self.content.take().unwrap_or_default();
        match content.rsplit_once("</think>") {
            Some((thought, said)) if lockstep_step::planted!(SplitAtTheLastTag) => {
                self.reasoning.get_or_insert_default().push_str(thought);
                self.content = Some(said.trim().to_string());
            }
            _ => self.content = Some(content).filter(|content| !content.is_empty()),
        }
    }

    fn message(&self, head: &ChatHead, choice: usize) -> Value {
        let mut message = Map::new();
        message.insert("role".to_string(), json!("assistant"));
        message.insert("content".to_string(), json!(self.content));
        if let Some(reasoning) = &self.reasoning {
            message.insert("reasoning_content".to_string(), json!(reasoning));
            message.insert("reasoning".to_string(), json!(reasoning));
        }
        let whole = self.calls.iter().filter(|call| call.whole);
        let calls: Vec<Value> = whole
            .map(|call| {
                json!({
                    "id": head.call_id(choice, call.index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                })
            })
            .collect();
        if !calls.is_empty() {
            message.insert("tool_calls".to_string(), Value::Array(calls));
        }
        message.insert("refusal".to_string(), Value::Null);
        Value::Object(message)
    }
}

/// Waits for the whole answer.
pub(crate) async fn collect(
    mut generation: Generation,
    head: &ChatHead,
) -> Result<Value, ApiError> {
    let num_choices = head.seeds.len();
    let mut readers: Vec<ChoiceReader> =
        (0..num_choices).map(|_| ChoiceReader::new(true)).collect();
    let mut choices: Vec<Choice> = (0..num_choices).map(|_| Choice::default()).collect();
    let mut pieces = Vec::new();
    while let Some((idx, update)) = generation.next().await {
        readers[idx].read(update, &mut pieces);
        for piece in pieces.drain(..) {
            choices[idx].push(head, piece);
        }
        if let Some(Outcome {
            end: End::Failed(failure),
            ..
        }) = &choices[idx].outcome
        {
            // Dropping the generation aborts the other choices.
            return Err(failed(failure, choices[idx].message(head, idx)));
        }
    }
    let mut warnings = head.warnings.clone();
    let mut usages = Vec::with_capacity(num_choices);
    let mut written = Vec::with_capacity(num_choices);
    for (idx, choice) in choices.iter().enumerate() {
        let Some(outcome) = &choice.outcome else {
            return Err(ApiError::new(500, "engine_stopped", "a choice never ended"));
        };
        usages.push(outcome.usage);
        if outcome.dropped_call {
            warnings.push(dropped_call_warning(idx));
        }
        let logprobs = match head.wants_logprobs {
            true => json!({"content": choice.logprobs, "refusal": null}),
            false => Value::Null,
        };
        written.push(json!({
            "index": idx,
            "message": choice.message(head, idx),
            "logprobs": logprobs,
            "finish_reason": finish_reason(&outcome.end),
            "stop_reason": stop_reason(&outcome.end),
            "seed": head.seeds[idx],
        }));
    }
    let mut body = head.object("chat.completion");
    body.insert("choices".to_string(), Value::Array(written));
    body.insert("usage".to_string(), usage(&usages, 1));
    body.insert("seed".to_string(), json!(head.seeds.first()));
    if !warnings.is_empty() {
        body.insert("warnings".to_string(), Value::Array(warnings));
    }
    Ok(Value::Object(body))
}
