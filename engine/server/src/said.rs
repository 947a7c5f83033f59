//! What a client was told, whatever the API and however it was delivered: so that answers can be compared with `==`.
//! It must never smooth over a difference that a client could see.

use crate::automaton::{StreamData, StreamEvent, events};
use serde_json::{Value, json};

/// The route that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/messages`
    Messages,
}

impl Route {
    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Route::Chat => "/v1/chat/completions",
            Route::Completions => "/v1/completions",
            Route::Messages => "/v1/messages",
        }
    }
}

/// One choice as a client has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Of the reasoning channel.
    pub reasoning: String,
    /// The answer's text.
    pub content: String,
    /// Name and arguments of each call.
    pub calls: Vec<(String, String)>,
    /// Why it ended, in the API's own word.
    pub finish: Option<String>,
    /// The string that ended it.
    pub stop: Value,
    /// Everything about log-probabilities, one entry a token.
    pub logprobs: Vec<Value>,
    /// The code of the error that ended it.
    pub error: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// One per choice. Of a whole response that is an error, only what the error brought along.
    pub choices: Vec<Said>,
    /// Tokens of prompt, output and reasoning.
    pub usage: Option<[u64; 3]>,
    /// Of the prompt, those that the cache had.
    pub cached: Option<u64>,
    /// The code of an error in place of an answer.
    pub refused: Option<String>,
}

impl Answer {
    /// Reads a whole response.
    ///
    /// # Errors
    /// If it is not what the API says.
    pub fn whole(route: Route, status: u16, body: &[u8]) -> Result<Answer, String> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| format!("status {status}, a body that is no JSON: {error}"))?;
        if status != 200 {
            let error = &body["error"];
            let code = error["code"]
                .as_str()
                .ok_or_else(|| format!("no error code in {body}"))?;
            if error["message"].as_str().is_none_or(str::is_empty) {
                return Err(format!("an error without a message: {body}"));
            }
            return Ok(Answer {
                refused: Some(code.to_owned()),
                ..Answer::default()
            });
        }
        match route {
            Route::Messages => whole_message(&body),
            Route::Chat | Route::Completions => whole_choices(&body),
        }
    }

    /// Reads what came of a stream, which may break off anywhere.
    ///
    /// # Errors
    /// If what came is not what the API says.
    pub fn stream(route: Route, bytes: &[u8]) -> Result<Answer, String> {
        let end = bytes.windows(2).rposition(|pair| pair == b"\n\n");
        let events = events(&bytes[..end.map_or(0, |at| at + 2)])?;
        let mut answer = Answer::default();
        for event in &events {
            match route {
                Route::Messages => message_event(&mut answer, event)?,
                Route::Chat | Route::Completions => choice_event(&mut answer, event)?,
            }
        }
        Ok(answer)
    }

    fn choice(&mut self, idx: usize) -> &mut Said {
        while self.choices.len() <= idx {
            self.choices.push(Said::default());
        }
        &mut self.choices[idx]
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn openai_usage(answer: &mut Answer, usage: &Value) {
    if usage.is_null() {
        return;
    }
    answer.usage = Some([
        number(&usage["prompt_tokens"]),
        number(&usage["completion_tokens"]),
        number(&usage["completion_tokens_details"]["reasoning_tokens"]),
    ]);
    answer.cached = Some(number(&usage["prompt_tokens_details"]["cached_tokens"]));
}

fn anthropic_usage(answer: &mut Answer, usage: &Value) {
    let cached = number(&usage["cache_read_input_tokens"]);
    answer.usage = Some([
        number(&usage["input_tokens"]) + cached,
        number(&usage["output_tokens"]),
        number(&usage["reasoning_tokens"]),
    ]);
    answer.cached = Some(cached);
}

/// Entries of either shape of log-probabilities.
fn logprobs(value: &Value) -> Vec<Value> {
    if let Some(content) = value["content"].as_array() {
        return content.clone();
    }
    let tokens = value["tokens"].as_array().map_or(0, Vec::len);
    let lists = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];
    let entry = |idx: usize| Value::Array(lists.map(|list| value[list][idx].clone()).to_vec());
    (0..tokens).map(entry).collect()
}

fn whole_choices(body: &Value) -> Result<Answer, String> {
    let mut answer = Answer::default();
    let choices = body["choices"].as_array().ok_or("no choices")?;
    for (idx, choice) in choices.iter().enumerate() {
        if choice["index"] != json!(idx) {
            return Err(format!("choice {idx} has index {}", choice["index"]));
        }
        let message = &choice["message"];
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| {
            let function = &call["function"];
            (
                text(&function["name"]).to_owned(),
                text(&function["arguments"]).to_owned(),
            )
        });
        answer.choices.push(Said {
            reasoning: text(&message["reasoning_content"]).to_owned(),
            content: text(&message["content"]).to_owned() + text(&choice["text"]),
            calls: calls.collect(),
            finish: choice["finish_reason"].as_str().map(str::to_owned),
            stop: choice["stop_reason"].clone(),
            logprobs: logprobs(&choice["logprobs"]),
            error: None,
        });
    }
    openai_usage(&mut answer, &body["usage"]);
    Ok(answer)
}

fn choice_event(answer: &mut Answer, event: &StreamEvent) -> Result<(), String> {
    let StreamData::Json(data) = &event.data else {
        return Ok(());
    };
    if let Some(code) = data["error"]["code"].as_str() {
        // The chunk that follows says whose it is.
        answer.refused = Some(code.to_owned());
        return Ok(());
    }
    openai_usage(answer, &data["usage"]);
    for choice in data["choices"].as_array().into_iter().flatten() {
        let idx = choice["index"].as_u64().ok_or("a choice without index")? as usize;
        let failed = match choice["finish_reason"] == "error" {
            true => answer.refused.take(),
            false => None,
        };
        let said = answer.choice(idx);
        let delta = &choice["delta"];
        said.reasoning += text(&delta["reasoning_content"]);
        said.content += text(&delta["content"]);
        said.content += text(&choice["text"]);
        said.logprobs.extend(logprobs(&choice["logprobs"]));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            match function["name"].as_str() {
                Some(name) => said.calls.push((name.to_owned(), String::new())),
                None => {
                    let last = said.calls.last_mut().ok_or("arguments of no call")?;
                    last.1 += text(&function["arguments"]);
                }
            }
        }
        if let Some(finish) = choice["finish_reason"].as_str() {
            said.finish = Some(finish.to_owned());
            said.stop = choice["stop_reason"].clone();
            said.error = failed;
        }
    }
    Ok(())
}

fn whole_message(body: &Value) -> Result<Answer, String> {
    let mut said = Said::default();
    for block in body["content"].as_array().ok_or("no content")? {
        match text(&block["type"]) {
            "thinking" => said.reasoning += text(&block["thinking"]),
            "text" => said.content += text(&block["text"]),
            "tool_use" => {
                let name = text(&block["name"]).to_owned();
                said.calls.push((name, block["input"].to_string()));
            }
            other => return Err(format!("a block of type {other:?}")),
        }
    }
    said.finish = body["stop_reason"].as_str().map(str::to_owned);
    said.stop = body["stop_sequence"].clone();
    let mut answer = Answer::default();
    answer.choices.push(said);
    anthropic_usage(&mut answer, &body["usage"]);
    Ok(answer)
}

fn message_event(answer: &mut Answer, event: &StreamEvent) -> Result<(), String> {
    let StreamData::Json(data) = &event.data else {
        return Err("[DONE] in a message stream".to_owned());
    };
    let said = answer.choice(0);
    match text(&data["type"]) {
        "content_block_start" if data["content_block"]["type"] == "tool_use" => {
            let name = text(&data["content_block"]["name"]).to_owned();
            said.calls.push((name, String::new()));
        }
        "content_block_delta" => {
            let delta = &data["delta"];
            said.reasoning += text(&delta["thinking"]);
            said.content += text(&delta["text"]);
            if let Some(json) = delta["partial_json"].as_str() {
                said.calls.last_mut().ok_or("input of no call")?.1 += json;
            }
        }
        "content_block_stop" => {
            // A whole response has the input as an object, without the blanks of the model.
            if let Some(last) = said.calls.last_mut()
                && let Ok(input) = serde_json::from_str::<Value>(&last.1)
            {
                last.1 = input.to_string();
            }
        }
        "message_delta" => {
            said.finish = data["delta"]["stop_reason"].as_str().map(str::to_owned);
            said.stop = data["delta"]["stop_sequence"].clone();
            anthropic_usage(answer, &data["usage"]);
        }
        "error" => {
            said.error = Some(text(&data["error"]["code"]).to_owned());
            said.finish = Some("error".to_owned());
        }
        _ => {}
    }
    Ok(())
}
