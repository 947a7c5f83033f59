//! `POST /v1/messages` and its `count_tokens`: the request.
//! Each field is read by name; what is known and can't be served is refused by name.

use crate::anthropic::messages::{conversation, tools};
use crate::anthropic::response::{MessageHead, collect};
use crate::anthropic::stream::MessageStream;
use crate::http::error::{ApiError, json_response};
use crate::http::fields::Fields;
use crate::job::{
    AnswerOptions, Conversation, chat_job, check_model, count_unknown, prompt_error, stop_strings,
    token_count,
};
use crate::openai::chat_messages::NEEDS_GRAMMAR;
use crate::openai::chat_request::refuse_constraints;
use crate::sampling::AskedSampling;
use crate::sse;
use crate::state::Shared;
use axum::body::Body;
use axum::http::Response;
use serde_json::{Map, Value, json};

/// Accepted, and without effect here.
const WITHOUT_EFFECT: &[&str] = &["metadata", "service_tier", "context_management", "betas"];

/// Answers a request.
pub(crate) async fn answer(
    shared: &Shared,
    request_id: &str,
    body: &Value,
) -> Result<Response<Body>, ApiError> {
    let limits = &shared.config.limits;
    let mut fields = Fields::new(body, "")?;
    check_model(shared, &mut fields)?;
    let conversation = read(shared, &mut fields)?;
    fields.required("max_tokens", "a whole number of at least 1")?;
    let max_tokens = token_count(&mut fields, "max_tokens")?;
    if let (Some((field, budget)), Some(max)) = (conversation.budget, max_tokens)
        && budget >= max
    {
        let message = format!("{field} is {budget}, expected less than max_tokens, {max}");
        return Err(ApiError::field("invalid_value", field, message));
    }
    let options = AnswerOptions {
        n: 1,
        max_tokens,
        stop_strings: stop_strings(shared, &mut fields, "stop_sequences")?,
        ignore_eos: fields.bool("ignore_eos")?.unwrap_or(false),
        logprobs: None,
        stream: fields.bool("stream")?.unwrap_or(false),
        sampling: AskedSampling::read(&mut fields, shared.contract.vocab_size, limits.bias_max)?,
    };
    count_unknown(shared, &fields);
    let job = chat_job(shared, &conversation, options)?;
    let generation = job.submit(shared).await?;
    let head = MessageHead::new(shared, &job, request_id)?;
    if job.stream {
        let encoder = MessageStream::new(head);
        return Ok(sse::response(generation, encoder, shared.config.keep_alive));
    }
    Ok(json_response(200, &collect(generation, head).await?))
}

/// Counts the tokens of a conversation.
pub(crate) fn count_tokens(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    let mut fields = Fields::new(body, "")?;
    check_model(shared, &mut fields)?;
    let conversation = read(shared, &mut fields)?;
    fields.accept(&["max_tokens", "stream", "temperature"]);
    count_unknown(shared, &fields);
    let tools = (!conversation.tools.is_empty()).then_some(&conversation.tools[..]);
    let prompt = shared
        .model
        .encode_chat(&conversation.messages, tools, &conversation.kwargs)
        .map_err(|error| prompt_error("messages", error))?;
    Ok(json!({"input_tokens": prompt.token_ids.len()}))
}

/// What both routes read.
fn read(shared: &Shared, fields: &mut Fields<'_>) -> Result<Conversation, ApiError> {
    fields.accept(WITHOUT_EFFECT);
    refuse_constraints(fields)?;
    for name in ["output_format", "output_config"] {
        fields.refuse(name, |_| false, NEEDS_GRAMMAR)?;
    }
    for name in ["mcp_servers", "container"] {
        let empty = |value: &Value| *value == json!([]);
        fields.refuse(name, empty, "this server runs no tools")?;
    }
    let messages = conversation(fields)?;
    let declared = fields.array("tools")?.unwrap_or_default();
    let declared = tools(declared, shared.config.limits.tools_max)?;
    let offered = tool_choice(fields)?;
    let (kwargs, budget) = thinking(fields)?;
    Ok(Conversation {
        messages,
        tools: if offered { declared } else { Vec::new() },
        kwargs,
        budget,
    })
}

/// Whether the model may call tools.
fn tool_choice(fields: &mut Fields<'_>) -> Result<bool, ApiError> {
    let Some(mut choice) = fields.object("tool_choice")? else {
        return Ok(true);
    };
    let kind = choice.required_string("type")?;
    if choice.bool("disable_parallel_tool_use")? == Some(true) && kind != "none" {
        let path = choice.path("disable_parallel_tool_use");
        return Err(ApiError::unsupported(path, NEEDS_GRAMMAR));
    }
    match kind {
        "auto" => Ok(true),
        "none" => Ok(false),
        "any" | "tool" => {
            let why = format!("{kind:?}: {NEEDS_GRAMMAR}");
            Err(ApiError::unsupported(choice.path("type"), &why))
        }
        other => {
            let expected = "one of auto, none, any, tool";
            Err(choice.wrong("type", &json!(other), expected))
        }
    }
}

/// The template's arguments and the limit on reasoning.
type ThinkingOptions = (Map<String, Value>, Option<(&'static str, u32)>);

fn thinking(fields: &mut Fields<'_>) -> Result<ThinkingOptions, ApiError> {
    let mut kwargs = Map::new();
    let mut budget = None;
    if let Some(mut thinking) = fields.object("thinking")? {
        let enabled = match thinking.required_string("type")? {
            "enabled" => {
                let expected = "a whole number of at least 1";
                thinking.required("budget_tokens", expected)?;
                let tokens = token_count(&mut thinking, "budget_tokens")?;
                budget = tokens.map(|tokens| ("thinking.budget_tokens", tokens));
                true
            }
            "adaptive" => true,
            "disabled" => false,
            other => {
                let expected = "one of enabled, adaptive, disabled";
                return Err(thinking.wrong("type", &json!(other), expected));
            }
        };
        kwargs.insert("enable_thinking".to_string(), json!(enabled));
    }
    if let Some(own) = fields.object("chat_template_kwargs")? {
        kwargs.extend(own.map().clone());
    }
    Ok((kwargs, budget))
}
