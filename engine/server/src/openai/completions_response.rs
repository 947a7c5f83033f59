//! `POST /v1/completions`: the response, whole and streamed.
//! Both must say the same; the text is the model's, untouched.

use crate::answer::{ChoiceReader, End, Outcome, Piece};
use crate::generation::{Generation, Update};
use crate::http::error::{Api, ApiError};
use crate::openai::chat_response::{ChatHead, failed, finish_reason, stop_reason, usage};
use crate::openai::logprobs::CompletionLogprobs;
use crate::sse::{Encoder, write_data};
use lockstep_core::Usage;
use serde_json::{Value, json};

/// Log-probabilities of one choice, and how far its tokens reach.
#[derive(Clone, Default)]
struct TokenTrack {
    logprobs: CompletionLogprobs,
    // Characters of the tokens so far, half characters counted as one.
    offset: usize,
}

impl TokenTrack {
    fn push(&mut self, head: &ChatHead, piece: &Piece) {
        if let Piece::Token {
            token,
            bytes,
            logprobs: Some(logprobs),
        } = piece
            && !bytes.is_empty()
        {
            let model = head.model.as_ref();
            self.logprobs
                .push(model, (*token, bytes), logprobs, self.offset);
            self.offset += String::from_utf8_lossy(bytes).chars().count();
        }
    }

    fn take(&mut self) -> Value {
        match self.logprobs.is_empty() {
            true => Value::Null,
            false => self.logprobs.take(),
        }
    }
}

/// Waits for the whole answer.
pub(crate) async fn collect(
    mut generation: Generation,
    head: &ChatHead,
    echoes: &[String],
) -> Result<Value, ApiError> {
    let num_choices = head.seeds.len();
    let per_prompt = num_choices / echoes.len().max(1);
    let mut readers: Vec<ChoiceReader> =
        (0..num_choices).map(|_| ChoiceReader::new(false)).collect();
    let echo_of = |idx: usize| echoes[idx / per_prompt].clone();
    let mut texts: Vec<String> = (0..num_choices).map(echo_of).collect();
    let mut tracks = vec![TokenTrack::default(); num_choices];
    let mut outcomes: Vec<Option<Outcome>> = vec![None; num_choices];
    let mut pieces = Vec::new();
    while let Some((idx, update)) = generation.next().await {
        readers[idx].read(update, &mut pieces);
        for piece in pieces.drain(..) {
            tracks[idx].push(head, &piece);
            match piece {
                Piece::Content(text) => texts[idx].push_str(&text),
                Piece::End(outcome) => {
                    if let End::Failed(failure) = &outcome.end {
                        return Err(failed(failure, json!({"text": texts[idx]})));
                    }
                    outcomes[idx] = Some(outcome);
                }
                _ => {}
            }
        }
    }
    let mut usages = Vec::with_capacity(num_choices);
    let mut written = Vec::with_capacity(num_choices);
    for (idx, outcome) in outcomes.iter().enumerate() {
        let Some(outcome) = outcome else {
            return Err(ApiError::new(500, "engine_stopped", "a choice never ended"));
        };
        usages.push(outcome.usage);
        written.push(json!({
            "index": idx,
            "text": texts[idx],
            "logprobs": tracks[idx].take(),
            "finish_reason": finish_reason(&outcome.end),
            "stop_reason": stop_reason(&outcome.end),
            "seed": head.seeds[idx],
        }));
    }
    let mut body = head.object("text_completion");
    body.insert("choices".to_string(), Value::Array(written));
    body.insert("usage".to_string(), usage(&usages, echoes.len()));
    body.insert("seed".to_string(), json!(head.seeds.first()));
    if !head.warnings.is_empty() {
        body.insert("warnings".to_string(), json!(head.warnings));
    }
    Ok(Value::Object(body))
}

/// Writes a completion stream: chunks with text, one with `finish_reason` per choice, optional
/// usage, `[DONE]`.
pub(crate) struct CompletionStream {
    head: ChatHead,
    readers: Vec<ChoiceReader>,
    include_usage: bool,
    echoes: Vec<String>,
    tracks: Vec<TokenTrack>,
    begun: Vec<bool>,
    usages: Vec<Usage>,
}

impl CompletionStream {
    pub(crate) fn new(
        head: ChatHead,
        readers: Vec<ChoiceReader>,
        include_usage: bool,
        echoes: Vec<String>,
    ) -> CompletionStream {
        CompletionStream {
            include_usage,
            echoes,
            tracks: vec![TokenTrack::default(); readers.len()],
            begun: vec![false; readers.len()],
            usages: vec![Usage::default(); readers.len()],
            head,
            readers,
        }
    }

    fn chunk(&mut self, choice: usize, text: &str, outcome: Option<&Outcome>) -> Value {
        let mut chunk = self.head.object("text_completion");
        let mut entry = json!({
            "index": choice,
            "text": text,
            "logprobs": self.tracks[choice].take(),
            "finish_reason": outcome.map(|outcome| finish_reason(&outcome.end)),
        });
        if let Some(outcome) = outcome {
            entry["stop_reason"] = stop_reason(&outcome.end);
        }
        // There is no first chunk before the text, so the seed comes with the first text.
        if !std::mem::replace(&mut self.begun[choice], true) {
            entry["seed"] = json!(self.head.seeds[choice]);
            if choice == 0 {
                chunk.insert("seed".to_string(), json!(self.head.seeds[0]));
                if !self.head.warnings.is_empty() {
                    chunk.insert("warnings".to_string(), json!(self.head.warnings));
                }
            }
        }
        chunk.insert("choices".to_string(), json!([entry]));
        if self.include_usage {
            chunk.insert("usage".to_string(), Value::Null);
        }
        Value::Object(chunk)
    }
}

impl Encoder for CompletionStream {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let per_prompt = self.readers.len() / self.echoes.len().max(1);
        for choice in 0..self.readers.len() {
            let echo = self.echoes[choice / per_prompt].clone();
            if !echo.is_empty() {
                let chunk = self.chunk(choice, &echo, None);
                write_data(&chunk, out);
            }
        }
    }

    fn update(&mut self, choice: usize, update: Update, out: &mut Vec<u8>) {
        let mut pieces = Vec::new();
        if let Some(reader) = self.readers.get_mut(choice) {
            reader.read(update, &mut pieces);
        }
        for piece in pieces {
            self.tracks[choice].push(&self.head, &piece);
            match piece {
                Piece::Content(text) => {
                    let chunk = self.chunk(choice, &text, None);
                    write_data(&chunk, out);
                }
                Piece::End(outcome) => {
                    if let End::Failed(failure) = &outcome.end {
                        write_data(&failure.error().body(Api::OpenAi, ""), out);
                    }
                    self.usages[choice] = outcome.usage;
                    let chunk = self.chunk(choice, "", Some(&outcome));
                    write_data(&chunk, out);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if self.include_usage {
            let mut chunk = self.head.object("text_completion");
            chunk.insert("choices".to_string(), json!([]));
            chunk.insert("usage".to_string(), usage(&self.usages, self.echoes.len()));
            write_data(&Value::Object(chunk), out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
