//! What came of a request, gathered from its events. It must never print: commands decide what is shown.

use lockstep_core::{Event, EventKind, Finish, Finished};
use serde_json::{Map, Value, json};

/// An answer so far.
#[derive(Debug, Default)]
pub struct Answer {
    /// Reasoning, if the model reasons.
    pub reasoning: String,
    /// The answer proper.
    pub content: String,
    /// Calls: the tool's name, and its arguments as JSON text.
    pub calls: Vec<(String, String)>,
    /// Every token, the end token included.
    pub token_ids: Vec<u32>,
    /// One digest per token, of the logits that it was drawn from.
    pub digests: Vec<u64>,
    /// How it ended, once it has.
    pub finished: Option<Finished>,
}

impl Answer {
    /// Takes one piece of news.
    pub fn push(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Token { token, digest, .. } => {
                self.token_ids.push(token.0);
                self.digests.push(digest.0);
            }
            EventKind::Reasoning(text) => self.reasoning.push_str(text),
            EventKind::Content(text) => self.content.push_str(text),
            EventKind::CallBegin { name, .. } => self.calls.push((name.clone(), String::new())),
            EventKind::CallArguments { fragment, .. } => {
                if let Some((_, arguments)) = self.calls.last_mut() {
                    arguments.push_str(fragment);
                }
            }
            EventKind::Finished(finished) => self.finished = Some(finished.clone()),
            EventKind::Scheduled
            | EventKind::CallEnd { .. }
            | EventKind::DroppedSpecial { .. }
            | EventKind::Preempted => {}
        }
    }

    /// The id of a call, by its index.
    pub fn call_id(idx: usize) -> String {
        format!("call_{idx}")
    }

    /// As a message of the conversation, the way templates read it.
    pub fn message(&self) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        message.insert("content".to_owned(), json!(self.content));
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), json!(self.reasoning));
        }
        if !self.calls.is_empty() {
            let calls = self
                .calls
                .iter()
                .enumerate()
                .map(|(idx, (name, arguments))| {
                    let arguments: Value = serde_json::from_str(arguments).unwrap_or(json!({}));
                    let function = json!({"name": name, "arguments": arguments});
                    json!({"id": Answer::call_id(idx), "type": "function", "function": function})
                });
            message.insert("tool_calls".to_owned(), calls.collect());
        }
        Value::Object(message)
    }
}

/// One word for how an answer ended, as the APIs call it.
pub fn finish_word(finish: &Finish) -> &'static str {
    match finish {
        Finish::EndToken(_) | Finish::StopString(_) => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Aborted => "aborted",
        Finish::Error(_) => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_step::SeqId;

    fn answer(kinds: Vec<EventKind>) -> Answer {
        let mut answer = Answer::default();
        for kind in kinds {
            answer.push(&Event {
                seq: SeqId(1),
                at: 0,
                kind,
            });
        }
        answer
    }

    #[test]
    fn calls_gather_their_arguments() {
        let answer = answer(vec![
            EventKind::Reasoning("Hm".to_owned()),
            EventKind::Reasoning(".".to_owned()),
            EventKind::CallBegin {
                index: 0,
                name: "f".to_owned(),
            },
            EventKind::CallArguments {
                index: 0,
                fragment: r#"{"a":"#.to_owned(),
            },
            EventKind::CallArguments {
                index: 0,
                fragment: "1}".to_owned(),
            },
            EventKind::CallEnd { index: 0 },
        ]);
        let message = answer.message();
        assert_eq!(message["reasoning_content"], "Hm.");
        assert_eq!(message["tool_calls"][0]["function"]["name"], "f");
        assert_eq!(
            message["tool_calls"][0]["function"]["arguments"],
            json!({"a": 1})
        );
    }
}
