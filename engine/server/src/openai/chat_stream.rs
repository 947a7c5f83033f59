//! `POST /v1/chat/completions`: the streamed response. Role delta, deltas, one chunk with
//! `finish_reason` per choice, optional usage chunk, `[DONE]`; after an error an `error` object,
//! then the chunk with `finish_reason: "error"`. The stream always ends with `[DONE]`.

use crate::answer::{ChoiceReader, End, Outcome, Piece};
use crate::generation::Update;
use crate::http::error::Api;
use crate::job::dropped_call_warning;
use crate::openai::chat_response::{ChatHead, finish_reason, stop_reason, usage};
use crate::openai::logprobs::chat_entry;
use crate::sse::{Encoder, write_data};
use lockstep_core::Usage;
use lockstep_step::planted;
use serde_json::{Value, json};

/// Writes a chat stream.
pub(crate) struct ChatStream {
    head: ChatHead,
    readers: Vec<ChoiceReader>,
    include_usage: bool,
    // Entries that wait for the next chunk, by choice.
    logprobs: Vec<Vec<Value>>,
    usages: Vec<Usage>,
}

impl ChatStream {
    pub(crate) fn new(
        head: ChatHead,
        readers: Vec<ChoiceReader>,
        include_usage: bool,
    ) -> ChatStream {
        ChatStream {
            include_usage,
            logprobs: vec![Vec::new(); readers.len()],
            usages: vec![Usage::default(); readers.len()],
            head,
            readers,
        }
    }

    fn chunk(&mut self, choice: usize, delta: Value, outcome: Option<&Outcome>) -> Value {
        let mut chunk = self.head.object("chat.completion.chunk");
        let waiting = std::mem::take(&mut self.logprobs[choice]);
        let logprobs = match waiting.is_empty() {
            true => Value::Null,
            false => json!({"content": waiting, "refusal": null}),
        };
        let mut entry = json!({
            "index": choice,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": outcome.map(|outcome| finish_reason(&outcome.end)),
        });
        // Planted: vllm-project/vllm#53269.
        if planted!(CallsHideLength) && outcome.is_some_and(|outcome| outcome.dropped_call) {
            entry["finish_reason"] = json!("tool_calls");
        }
        if let Some(outcome) = outcome {
            entry["stop_reason"] = stop_reason(&outcome.end);
            if outcome.dropped_call {
                let warnings = json!([dropped_call_warning(choice)]);
                chunk.insert("warnings".to_string(), warnings);
            }
        }
        chunk.insert("choices".to_string(), json!([entry]));
        if self.include_usage {
            chunk.insert("usage".to_string(), Value::Null);
        }
        Value::Object(chunk)
    }

    fn piece(&mut self, choice: usize, piece: Piece, out: &mut Vec<u8>) {
        let delta = match piece {
            Piece::Token {
                bytes, logprobs, ..
            } => {
                if let Some(logprobs) = logprobs.filter(|_| !bytes.is_empty()) {
                    let entry = chat_entry(self.head.model.as_ref(), &bytes, &logprobs);
                    self.logprobs[choice].push(entry);
                }
                return;
            }
            Piece::Reasoning(text) => json!({"reasoning_content": text, "reasoning": text}),
            Piece::Content(text) => json!({"content": text}),
            Piece::CallBegin { index, name } => json!({"tool_calls": [{
                "index": index,
                "id": self.head.call_id(choice, index),
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }]}),
            Piece::CallArguments { index, fragment } => json!({"tool_calls": [{
                "index": index,
                "function": {"arguments": fragment},
            }]}),
            Piece::CallEnd { .. } => return,
            Piece::End(outcome) => {
                if let End::Failed(failure) = &outcome.end {
                    write_data(&failure.error().body(Api::OpenAi, ""), out);
                }
                self.usages[choice] = outcome.usage;
                let chunk = self.chunk(choice, json!({}), Some(&outcome));
                write_data(&chunk, out);
                return;
            }
        };
        let chunk = self.chunk(choice, delta, None);
        write_data(&chunk, out);
    }
}

impl Encoder for ChatStream {
    fn begin(&mut self, out: &mut Vec<u8>) {
        for choice in 0..self.readers.len() {
            // A null content keeps the folded stream equal to the whole response.
            let delta = json!({"role": "assistant", "content": null});
            let mut chunk = self.chunk(choice, delta, None);
            chunk["choices"][0]["seed"] = json!(self.head.seeds[choice]);
            if choice == 0 {
                chunk["seed"] = json!(self.head.seeds[0]);
                if !self.head.warnings.is_empty() {
                    chunk["warnings"] = json!(self.head.warnings);
                }
            }
            write_data(&chunk, out);
        }
    }

    fn update(&mut self, choice: usize, update: Update, out: &mut Vec<u8>) {
        let mut pieces = Vec::new();
        if let Some(reader) = self.readers.get_mut(choice) {
            reader.read(update, &mut pieces);
        }
        for piece in pieces {
            self.piece(choice, piece, out);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if self.include_usage {
            let mut chunk = self.head.object("chat.completion.chunk");
            chunk.insert("choices".to_string(), json!([]));
            chunk.insert("usage".to_string(), usage(&self.usages, 1));
            write_data(&Value::Object(chunk), out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
