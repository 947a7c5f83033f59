//! `POST /v1/chat/completions`: the request.
//! Each field is read by name; what is known and can't be served is refused by name.

use crate::answer::ChoiceReader;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::job::{
    AnswerOptions, Conversation, Job, cache_salt, chat_job, check_model, choices, count_unknown,
    speculation, stop_strings, token_count,
};
use crate::openai::chat_messages::{calls, messages, tools};
use crate::openai::chat_response::{ChatHead, collect};
use crate::openai::chat_stream::ChatStream;
use crate::sampling::AskedSampling;
use crate::sse;
use crate::state::Shared;
use crate::structured;
use axum::body::Body;
use axum::http::Response;
use serde_json::{Map, Value, json};

/// Accepted, and without effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "verbosity",
];

/// A request, understood.
pub(crate) struct ChatRequest {
    pub(crate) job: Job,
    include_usage: bool,
    top_logprobs: Option<u32>,
}

/// Answers a request.
pub(crate) async fn answer(
    shared: &Shared,
    request_id: &str,
    body: &Value,
) -> Result<Response<Body>, ApiError> {
    let request = read(shared, body)?;
    let generation = request.job.submit(shared, request_id).await?;
    let head = ChatHead::new(shared, &request.job, request.top_logprobs.is_some())?;
    if request.job.stream {
        let readers = (0..request.job.num_choices()).map(|_| ChoiceReader::new(true));
        let encoder = ChatStream::new(head, readers.collect(), request.include_usage);
        return Ok(sse::response(generation, encoder, shared.config.keep_alive));
    }
    let body = collect(generation, &head).await?;
    Ok(crate::http::error::json_response(200, &body))
}

/// Reads a request.
pub(crate) fn read(shared: &Shared, body: &Value) -> Result<ChatRequest, ApiError> {
    let limits = &shared.config.limits;
    let mut fields = Fields::new(body, "")?;
    check_model(shared, &mut fields)?;
    fields.accept(WITHOUT_EFFECT);
    let answer = structured::answer(&mut fields)?;
    for name in ["functions", "function_call"] {
        fields.refuse(name, |_| false, "send tools and tool_choice instead")?;
    }
    let text_only = |value: &Value| *value == json!(["text"]);
    fields.refuse("modalities", text_only, "this model writes text only")?;
    for name in ["audio", "prediction", "web_search_options"] {
        fields.refuse(name, |_| false, "this server doesn't have it")?;
    }
    for name in [
        "continue_final_message",
        "use_beam_search",
        "logprob_token_ids",
    ] {
        fields.refuse(
            name,
            |value| *value == json!(false),
            "this server doesn't have it",
        )?;
    }
    for name in ["add_generation_prompt", "skip_special_tokens"] {
        fields.refuse(name, |value| *value == json!(true), "it is always on")?;
    }
    let expected = "an array of messages";
    fields.required("messages", expected)?;
    let messages = messages(fields.array("messages")?.unwrap_or_default())?;
    let tools = tools(fields.array("tools")?.unwrap_or_default(), limits.tools_max)?;
    let calls = calls(&mut fields, &tools)?;
    let (kwargs, budget) = reasoning_options(&mut fields)?;
    let conversation = Conversation {
        messages,
        tools,
        calls,
        answer,
        kwargs,
        budget,
    };
    let stream = fields.bool("stream")?.unwrap_or(false);
    let include_usage = stream_options(&mut fields, stream)?;
    let top_logprobs = logprobs(&mut fields)?;
    // The newer name wins where both are given.
    let older = token_count(&mut fields, "max_tokens")?;
    let options = AnswerOptions {
        n: choices(shared, &mut fields)?,
        max_tokens: token_count(&mut fields, "max_completion_tokens")?.or(older),
        stop_strings: stop_strings(shared, &mut fields, "stop")?,
        ignore_eos: fields.bool("ignore_eos")?.unwrap_or(false),
        speculation: speculation(shared, &mut fields)?,
        logprobs: top_logprobs,
        stream,
        cache_salt: cache_salt(shared, &mut fields)?,
        sampling: AskedSampling::read(&mut fields, shared.contract.vocab_size, limits.bias_max)?,
    };
    count_unknown(shared, &fields);
    Ok(ChatRequest {
        job: chat_job(shared, &conversation, options)?,
        include_usage,
        top_logprobs,
    })
}

/// The template's arguments and the limit on reasoning.
type ReasoningOptions = (Map<String, Value>, Option<(&'static str, u32)>);

fn reasoning_options(fields: &mut Fields<'_>) -> Result<ReasoningOptions, ApiError> {
    let mut kwargs = Map::new();
    let mut budget = None;
    if let Some(effort) = fields.string("reasoning_effort")? {
        set_effort(&mut kwargs, effort, "reasoning_effort")?;
    }
    if let Some(mut reasoning) = fields.object("reasoning")? {
        if let Some(effort) = reasoning.string("effort")? {
            set_effort(&mut kwargs, effort, "reasoning.effort")?;
        }
        if let Some(enabled) = reasoning.bool("enabled")? {
            kwargs.insert("enable_thinking".to_string(), json!(enabled));
        }
        let max_tokens = reasoning.integer("max_tokens", 0, i64::from(u32::MAX))?;
        budget = max_tokens
            .and_then(|max| u32::try_from(max).ok())
            .map(|max| ("reasoning.max_tokens", max));
    }
    if let Some(own) = fields.object("chat_template_kwargs")? {
        for name in ["messages", "tools", "documents", "add_generation_prompt"] {
            if own.map().contains_key(name) {
                let path = own.path(name);
                return Err(ApiError::unsupported(path, "the server fills it in"));
            }
        }
        kwargs.extend(own.map().clone());
    }
    Ok((kwargs, budget))
}

pub(crate) fn set_effort(
    kwargs: &mut Map<String, Value>,
    effort: &str,
    path: &'static str,
) -> Result<(), ApiError> {
    match effort {
        "none" => drop(kwargs.insert("enable_thinking".to_string(), json!(false))),
        "minimal" | "low" | "medium" | "high" | "xhigh" | "max" => {
            kwargs.insert("reasoning_effort".to_string(), json!(effort));
        }
        other => {
            let expected = "one of none, minimal, low, medium, high, xhigh, max";
            return Err(ApiError::value(path, &json!(other), expected));
        }
    }
    Ok(())
}

/// Whether the last chunk reports usage.
pub(crate) fn stream_options(fields: &mut Fields<'_>, stream: bool) -> Result<bool, ApiError> {
    let Some(mut options) = fields.object("stream_options")? else {
        return Ok(false);
    };
    if !stream {
        let message = "stream_options is set, expected it only with stream: true";
        return Err(ApiError::field("invalid_value", "stream_options", message));
    }
    options.accept(&["include_obfuscation", "continuous_usage_stats"]);
    Ok(options.bool("include_usage")?.unwrap_or(false))
}

/// How many of the most likely tokens are reported; None if no log-probabilities are wanted.
fn logprobs(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0, 20)?;
    match (wanted, top) {
        (true, top) => Ok(Some(
            top.and_then(|top| u32::try_from(top).ok()).unwrap_or(0),
        )),
        (false, None | Some(0)) => Ok(None),
        (false, Some(top)) => {
            let message = format!("top_logprobs is {top}, expected logprobs: true beside it");
            Err(ApiError::field("invalid_value", "top_logprobs", message))
        }
    }
}
