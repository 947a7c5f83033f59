//! Log-probabilities as OpenAI's API writes them, in the chat and in the completion shape.
//! Numbers are the model's own, before any processing; JSON has no infinity, so -9999 stands for it.

use crate::model::ChatModel;
use lockstep_step::{Logprobs, TokenId};
use serde_json::{Map, Value, json};

fn finite(logprob: f32) -> f64 {
    f64::from(logprob.max(-9999.0))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An entry of `logprobs.content`.
pub(crate) fn chat_entry(model: &dyn ChatModel, bytes: &[u8], logprobs: &Logprobs) -> Value {
    let top = logprobs.top.iter().map(|(token, logprob)| {
        let bytes = model.token_bytes(*token);
        json!({"token": lossy(bytes), "logprob": finite(*logprob), "bytes": bytes})
    });
    json!({
        "token": lossy(bytes),
        "logprob": finite(logprobs.drawn),
        "bytes": bytes,
        "top_logprobs": top.collect::<Vec<Value>>(),
    })
}

/// The four lists of a completion's `logprobs`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CompletionLogprobs {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<Value>,
}

impl CompletionLogprobs {
    /// Adds a token that begins at character `offset` of the text.
    pub(crate) fn push(
        &mut self,
        model: &dyn ChatModel,
        (token, bytes): (TokenId, &[u8]),
        logprobs: &Logprobs,
        offset: usize,
    ) {
        let text = lossy(bytes);
        let mut top = Map::new();
        for (token, logprob) in &logprobs.top {
            let text = lossy(model.token_bytes(*token));
            // Two tokens may look alike; the more likely one comes first and stays.
            top.entry(text).or_insert_with(|| json!(finite(*logprob)));
        }
        if !logprobs.top.iter().any(|(id, _)| *id == token) {
            top.insert(text.clone(), json!(finite(logprobs.drawn)));
        }
        self.tokens.push(json!(text));
        self.token_logprobs.push(json!(finite(logprobs.drawn)));
        self.top_logprobs.push(Value::Object(top));
        self.text_offset.push(json!(offset));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Its JSON; what was in it is gone.
    pub(crate) fn take(&mut self) -> Value {
        let taken = std::mem::take(self);
        json!({
            "tokens": taken.tokens,
            "token_logprobs": taken.token_logprobs,
            "top_logprobs": taken.top_logprobs,
            "text_offset": taken.text_offset,
        })
    }
}
