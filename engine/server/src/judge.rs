//! Holds the bytes of a response against what the engine told its reader: the same news through a fresh encoder must
//! say the same. It must never look at what differs between two responses to one request: ids, times, and how text
//! was cut into pieces.

use crate::model::ChatModel;
use crate::said::{Answer, Route, Said};
use crate::stream_words::{Said as Told, Streams};
use lockstep_capture::{FinishRecord, News, Text, Why};
use lockstep_core::{EventKind, Finish, Finished, RequestError, Usage};
use std::sync::Arc;

/// Judges a whole response. `choices` are the news of each choice, to their ends. None if nobody can judge it, since
/// text is left out.
///
/// # Errors
/// What the response says, and what it should say.
pub fn judge_response(
    model: &Arc<dyn ChatModel>,
    bytes: &[u8],
    choices: &[Vec<&News>],
) -> Option<Result<(), String>> {
    let told: Option<Vec<Vec<Told>>> = choices
        .iter()
        .map(|news| {
            news.iter()
                .map(|news| event(news).map(Told::Event))
                .collect()
        })
        .collect();
    let told = told.filter(|told| !told.is_empty())?;
    Some(judge(model, bytes, &told))
}

fn judge(model: &Arc<dyn ChatModel>, bytes: &[u8], told: &[Vec<Told>]) -> Result<(), String> {
    let (route, is_stream) = form(bytes)?;
    let found = match is_stream {
        true => Answer::stream(route, bytes)?,
        false => Answer::whole(route, 200, bytes)?,
    };
    let streams = Streams::of(model, told, true);
    let expected = match route {
        Route::Chat => Answer::stream(route, &streams.chat)?,
        Route::Completions => Answer::stream(route, &streams.completion)?,
        Route::Messages => Answer::stream(route, &streams.message)?,
    };
    if found.choices.len() != expected.choices.len() {
        let (found, expected) = (found.choices.len(), expected.choices.len());
        return Err(format!("{found} choices, expected {expected}"));
    }
    let pairs = found.choices.iter().zip(&expected.choices);
    for (idx, (found, expected)) in pairs.enumerate() {
        let (found, expected) = (plain(found, route), plain(expected, route));
        let is_same = found == expected
            // What was asked for can stand before an answer of this route.
            || route == Route::Completions && found.content.ends_with(&expected.content);
        if !is_same {
            return Err(format!(
                "choice {idx} says {found:?}, expected {expected:?}"
            ));
        }
    }
    Ok(())
}

/// What was asked, and whether the answer is a stream.
fn form(bytes: &[u8]) -> Result<(Route, bool), String> {
    let starts = |text: &str| bytes.starts_with(text.as_bytes());
    let has = |text: &str| bytes.windows(text.len()).any(|own| own == text.as_bytes());
    if starts("event:") {
        return Ok((Route::Messages, true));
    }
    let is_stream = starts("data:") || starts(":");
    match () {
        () if has("\"text_completion\"") => Ok((Route::Completions, is_stream)),
        () if has("\"chat.completion") => Ok((Route::Chat, is_stream)),
        () if has("\"message\"") && !is_stream => Ok((Route::Messages, false)),
        () => Err("it is no answer of any API".to_string()),
    }
}

/// Without what doesn't follow from the news alone.
fn plain(said: &Said, route: Route) -> Said {
    // The encoder of plain completions is given something to say first.
    let content = match route {
        Route::Completions => said.content.strip_prefix(ECHO).unwrap_or(&said.content),
        Route::Chat | Route::Messages => &said.content,
    };
    Said {
        content: content.to_string(),
        logprobs: Vec::new(),
        error: None,
        stop: serde_json::Value::Null,
        ..said.clone()
    }
}

/// What [`Streams`] lets plain completions begin with.
const ECHO: &str = "once";

/// News as the engine had it; None where its text is left out.
fn event(news: &News) -> Option<EventKind> {
    let own = |text: &Text| match text {
        Text::Plain(bytes) => String::from_utf8(bytes.clone()).ok(),
        Text::Digest(..) => None,
    };
    Some(match news {
        News::Scheduled => EventKind::Scheduled,
        News::Preempted => EventKind::Preempted,
        News::Token {
            token,
            bytes: Text::Plain(bytes),
            logprobs,
            digest,
        } => EventKind::Token {
            token: *token,
            bytes: bytes.clone(),
            logprobs: logprobs.clone(),
            digest: *digest,
        },
        News::Token { .. } => return None,
        News::Dropped(token) => EventKind::DroppedSpecial { token: *token },
        News::Reasoning(text) => EventKind::Reasoning(own(text)?),
        News::Content(text) => EventKind::Content(own(text)?),
        News::CallBegin(index, name) => EventKind::CallBegin {
            index: *index,
            name: own(name)?,
        },
        News::CallArguments(index, fragment) => EventKind::CallArguments {
            index: *index,
            fragment: own(fragment)?,
        },
        News::CallEnd(index) => EventKind::CallEnd { index: *index },
        News::Finished(finished) => EventKind::Finished(finish(finished, own)?),
    })
}

fn finish(finished: &FinishRecord, own: impl Fn(&Text) -> Option<String>) -> Option<Finished> {
    let finish = match &finished.why {
        Why::EndToken(token) => Finish::EndToken(*token),
        Why::StopString(text) => Finish::StopString(own(text)?),
        Why::Length => Finish::Length,
        Why::ToolCalls => Finish::ToolCalls,
        Why::Aborted => Finish::Aborted,
        // Which error it was is not compared.
        Why::Error(_, words) => Finish::Error(RequestError::Engine(own(words)?)),
    };
    let dropped_call = match &finished.dropped_call {
        Some(text) => Some(own(text)?),
        None => None,
    };
    Some(Finished {
        finish,
        usage: Usage {
            prompt_tokens: finished.prompt_tokens,
            completion_tokens: finished.completion_tokens,
            reasoning_tokens: finished.reasoning_tokens,
            cached_tokens: finished.cached_tokens,
        },
        dropped_call,
    })
}
