//! A streamed chat answer, read and timed: server-sent events, and what of them a user would see. It must
//! never take a stream that breaks off, or says nothing of its end, for an answer.

use crate::client::{
    endpoint::Fault,
    events::{invalid, shortened},
};
use serde_json::Value;

/// An answer that was read to its end. Times are in seconds after its request began.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// When each delta arrived that brought text, reasoning or a part of a call. Each may bring several
    /// tokens.
    pub deltas: Vec<f64>,
    /// When the stream had ended.
    pub end: f64,
    /// Why the model stopped.
    pub finish: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Of these, tokens that the server had computed before.
    pub cached_tokens: u64,
    /// Tokens of the answer, as the server counts them.
    pub completion_tokens: u64,
}

impl Answer {
    /// Time to the first delta; none if nothing was to be seen.
    pub fn first(&self) -> Option<f64> {
        self.deltas.first().copied()
    }

    /// Time between one delta and the next.
    pub fn gaps(&self) -> impl Iterator<Item = f64> {
        self.deltas.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// Mean time per token after the first delta; none of a single token.
    pub fn per_token(&self) -> Option<f64> {
        let (first, last) = (self.deltas.first()?, self.deltas.last()?);
        let num = self
            .completion_tokens
            .checked_sub(1)
            .filter(|num| *num > 0)?;
        (self.deltas.len() > 1).then(|| (last - first) / num as f64)
    }

    /// Tokens per second over the whole request.
    pub fn speed(&self) -> f64 {
        self.completion_tokens as f64 / self.end
    }
}

/// An answer as far as it was read.
#[derive(Debug, Default)]
pub struct ChatStream {
    deltas: Vec<f64>,
    finish: Option<String>,
    usage: Option<Value>,
    ended: Option<f64>,
}

impl ChatStream {
    /// Takes the data of an event that arrived so many seconds after the request began.
    ///
    /// # Errors
    /// An error that the server reports, or what no such stream may hold.
    pub fn event(&mut self, data: &str, seconds: f64) -> Result<(), Fault> {
        if self.ended.is_some() {
            return Err(invalid("an event comes after [DONE]"));
        }
        if data == "[DONE]" {
            self.ended = Some(seconds);
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|error| invalid(format!("{} is no JSON: {error}", shortened(data))))?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let code = error["code"].as_str().or(error["type"].as_str());
            let message = error["message"].as_str().unwrap_or("no message");
            return Err(Fault::new(code.unwrap_or("error"), message));
        }
        if chunk["usage"].is_object() {
            self.usage = Some(chunk["usage"].clone());
        }
        let choices = chunk["choices"].as_array();
        let choices = choices.ok_or_else(|| invalid("a chunk has no choices"))?;
        for choice in choices {
            if shows_something(&choice["delta"]) {
                if self.finish.is_some() {
                    return Err(invalid("a delta comes after finish_reason"));
                }
                self.deltas.push(seconds);
            }
            if let Some(finish) = choice["finish_reason"].as_str() {
                self.finish = Some(finish.to_owned());
            }
        }
        Ok(())
    }

    /// The answer, at the end of the body.
    ///
    /// # Errors
    /// If something is missing.
    pub fn finish(self) -> Result<Answer, Fault> {
        let end = self
            .ended
            .ok_or_else(|| invalid("it ends without [DONE]"))?;
        let finish = self
            .finish
            .ok_or_else(|| invalid("it has no finish_reason"))?;
        let usage = self
            .usage
            .ok_or_else(|| invalid("it has no usage, though include_usage asked for it"))?;
        if finish == "error" {
            return Err(Fault::new(
                "error",
                "finish_reason is error, without a reason",
            ));
        }
        let count = |name: &str| {
            let found = usage[name].as_u64();
            found.ok_or_else(|| invalid(format!("usage has no {name}")))
        };
        Ok(Answer {
            deltas: self.deltas,
            end,
            finish,
            prompt_tokens: count("prompt_tokens")?,
            cached_tokens: usage["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap_or(0),
            completion_tokens: count("completion_tokens")?,
        })
    }
}

/// Whether a delta brings anything of the answer itself.
fn shows_something(delta: &Value) -> bool {
    let text = ["content", "reasoning_content", "reasoning", "refusal"];
    let is_text = |name: &str| delta[name].as_str().is_some_and(|text| !text.is_empty());
    let calls = delta["tool_calls"].as_array();
    text.into_iter().any(is_text) || calls.is_some_and(|calls| !calls.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str =
        r#"{"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,
        "prompt_tokens_details":{"cached_tokens":3}}}"#;

    fn delta(delta: &str) -> String {
        format!(r#"{{"choices":[{{"delta":{delta},"finish_reason":null}}],"usage":null}}"#)
    }

    fn end(finish: &str) -> String {
        format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{finish}"}}]}}"#)
    }

    /// Event `i` arrives after `i` seconds.
    fn read(events: &[&str]) -> Result<Answer, Fault> {
        let mut stream = ChatStream::default();
        for (idx, data) in events.iter().enumerate() {
            stream.event(data, idx as f64)?;
        }
        stream.finish()
    }

    #[test]
    fn an_answer_is_timed() {
        let (reasoning, text) = (delta(r#"{"reasoning":"a"}"#), delta(r#"{"content":"b c"}"#));
        let call = delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#);
        let (empty, stop) = (delta(r#"{"content":""}"#), end("stop"));
        let answer = read(&[
            ROLE, &reasoning, &empty, &text, &call, &stop, USAGE, "[DONE]",
        ]);
        let answer = answer.expect("an answer");
        assert_eq!(answer.deltas, [1.0, 3.0, 4.0]);
        assert_eq!((answer.first(), answer.end), (Some(1.0), 7.0));
        assert_eq!(answer.gaps().collect::<Vec<f64>>(), [2.0, 1.0]);
        // Five tokens in three deltas: four of them after the first.
        assert_eq!(answer.per_token(), Some(0.75));
        assert_eq!(answer.speed(), 5.0 / 7.0);
        let counts = (
            answer.prompt_tokens,
            answer.cached_tokens,
            answer.completion_tokens,
        );
        assert_eq!((counts, answer.finish.as_str()), ((7, 3, 5), "stop"));
    }

    #[test]
    fn what_is_no_answer() {
        let (text, stop) = (delta(r#"{"content":"b"}"#), end("stop"));
        let failed = r#"{"error":{"code":"malformed_call","message":"no end"}}"#;
        let rows: &[(&[&str], &str, &str)] = &[
            (&[], "stream", "[DONE]"),
            (&[ROLE, &text, &stop, USAGE], "stream", "[DONE]"),
            (&[ROLE, &text, USAGE, "[DONE]"], "stream", "finish_reason"),
            (&[ROLE, &text, &stop, "[DONE]"], "stream", "usage"),
            (&[ROLE, &stop, &text], "stream", "after finish_reason"),
            (&["[DONE]", "[DONE]"], "stream", "after [DONE]"),
            (&["{"], "stream", "no JSON"),
            (&["{}"], "stream", "choices"),
            (&[ROLE, failed], "malformed_call", "no end"),
            (
                &[ROLE, &end("error"), USAGE, "[DONE]"],
                "error",
                "without a reason",
            ),
        ];
        for (events, code, part) in rows {
            let fault = read(events).expect_err(part);
            assert_eq!(fault.code, *code, "{fault:?}");
            assert!(fault.message.contains(part), "{fault:?}");
        }
    }

    #[test]
    fn one_delta_has_no_gap() {
        let (text, stop) = (delta(r#"{"content":"b"}"#), end("length"));
        let answer = read(&[&text, &stop, USAGE, "[DONE]"]).expect("an answer");
        assert_eq!((answer.gaps().count(), answer.per_token()), (0, None));
    }
}
