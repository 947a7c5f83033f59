//! `POST /v1/messages` and its `count_tokens`: the request.
//! Each field is read by name; what is known and can't be served is refused by name.

use crate::anthropic::messages::{conversation, tools};
use crate::anthropic::response::{MessageHead, collect};
use crate::anthropic::stream::MessageStream;
use crate::constraint::{AskedAnswer, AskedCalls, DeclaredTool, unknown_tool};
use crate::http::error::{ApiError, json_response};
use crate::http::fields::Fields;
use crate::job::{
    AnswerOptions, Conversation, Job, cache_salt, chat_job, check_model, count_unknown,
    speculation, stop_strings, token_count,
};
use crate::openai::chat_request::set_effort;
use crate::sampling::AskedSampling;
use crate::sse;
use crate::state::Shared;
use crate::structured;
use axum::body::Body;
use axum::http::Response;
use lockstep_grammar::ToolChoice;
#[cfg(planted)]
use lockstep_step::planted;
use serde_json::{Map, Value, json};

/// Accepted, and without effect here.
const WITHOUT_EFFECT: &[&str] = &["metadata", "service_tier", "context_management", "betas"];

/// Answers a request.
pub(crate) async fn answer(
    shared: &Shared,
    request_id: &str,
    body: &Value,
) -> Result<Response<Body>, ApiError> {
    let job = job(shared, body)?;
    let generation = job.submit(shared, request_id).await?;
    let head = MessageHead::new(shared, &job, request_id)?;
    if job.stream {
        let encoder = MessageStream::new(head);
        return Ok(sse::response(generation, encoder, shared.config.keep_alive));
    }
    Ok(json_response(200, &collect(generation, head).await?))
}

/// Reads a request.
pub(crate) fn job(shared: &Shared, body: &Value) -> Result<Job, ApiError> {
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
        speculation: speculation(shared, &mut fields)?,
        logprobs: None,
        stream: fields.bool("stream")?.unwrap_or(false),
        cache_salt: cache_salt(shared, &mut fields)?,
        sampling: AskedSampling::read(&mut fields, shared.contract.vocab_size, limits.bias_max)?,
    };
    count_unknown(shared, &fields);
    let job = chat_job(shared, &conversation, options)?;
    // Planted: sgl-project/sglang#888.
    #[cfg(planted)]
    let job = Job {
        prompts: crate::job::started_twice(shared, job.prompts, planted!(StartTwiceInMessages)),
        ..job
    };
    Ok(job)
}

/// Counts the tokens of a conversation.
pub(crate) fn count_tokens(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    let mut fields = Fields::new(body, "")?;
    check_model(shared, &mut fields)?;
    let conversation = read(shared, &mut fields)?;
    fields.accept(&["max_tokens", "stream", "temperature"]);
    count_unknown(shared, &fields);
    let prompt = conversation.encode(shared)?;
    Ok(json!({"input_tokens": prompt.token_ids.len()}))
}

/// What both routes read.
fn read(shared: &Shared, fields: &mut Fields<'_>) -> Result<Conversation, ApiError> {
    fields.accept(WITHOUT_EFFECT);
    for name in ["mcp_servers", "container"] {
        let empty = |value: &Value| *value == json!([]);
        fields.refuse(name, empty, "this server runs no tools")?;
    }
    let messages = conversation(fields)?;
    let declared = fields.array("tools")?.unwrap_or_default();
    let declared = tools(declared, shared.config.limits.tools_max)?;
    let calls = tool_choice(fields, &declared)?;
    let (mut kwargs, budget) = thinking(fields)?;
    let answer = output(fields, &mut kwargs)?;
    Ok(Conversation {
        messages,
        tools: declared,
        calls,
        answer,
        kwargs,
        budget,
    })
}

/// Whether tools may or must be called.
fn tool_choice(fields: &mut Fields<'_>, tools: &[DeclaredTool]) -> Result<AskedCalls, ApiError> {
    let Some(mut choice) = fields.object("tool_choice")? else {
        return Ok(AskedCalls::auto());
    };
    let kind = choice.required_string("type")?;
    let single = choice.bool("disable_parallel_tool_use")? == Some(true);
    let name = choice.string("name")?;
    let asked = match (kind, name) {
        ("auto", _) => ToolChoice::Auto,
        ("none", _) => ToolChoice::Forbidden,
        ("any" | "tool", _) if tools.is_empty() => {
            let expected = format!("at least one, as tool_choice.type is {kind:?}");
            return Err(fields.missing("tools", &expected));
        }
        ("any", _) => ToolChoice::Required,
        ("tool", Some(name)) if tools.iter().any(|tool| tool.name() == name) => {
            ToolChoice::Named(name.to_string())
        }
        ("tool", Some(name)) => return Err(unknown_tool(&choice.path("name"), name, tools)),
        ("tool", None) => return Err(choice.missing("name", "the name of a tool")),
        (other, _) => {
            let expected = "one of auto, none, any, tool";
            return Err(choice.wrong("type", &json!(other), expected));
        }
    };
    Ok(AskedCalls {
        choice: asked,
        allowed: None,
        single: single.then(|| choice.path("disable_parallel_tool_use")),
    })
}

/// What the answer may be: in this API's own words, the older ones first, or in the other API's.
fn output(
    fields: &mut Fields<'_>,
    kwargs: &mut Map<String, Value>,
) -> Result<Option<AskedAnswer>, ApiError> {
    let mut found = structured::answer(fields)?;
    let mut formats = vec![fields.object("output_format")?];
    if let Some(mut config) = fields.object("output_config")? {
        if let Some(effort) = config.string("effort")? {
            set_effort(kwargs, effort, "output_config.effort")?;
        }
        formats.push(config.object("format")?);
    }
    for mut format in formats.into_iter().flatten() {
        match format.required_string("type")? {
            "json_schema" => {}
            other => return Err(format.wrong("type", &json!(other), "\"json_schema\"")),
        }
        let path = format.path("schema");
        let schema = format.required("schema", "a JSON schema")?;
        let asked = structured::json_schema(schema, &path)?;
        if let Some(first) = &found {
            return Err(structured::conflict(&first.field, &asked.field));
        }
        found = Some(asked);
    }
    Ok(found)
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
