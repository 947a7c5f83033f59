//! The messages, system and tools of a messages request, to the shape that templates read.
//! A block that can't be shown to the model is refused by name, never left out.

use crate::constraint::DeclaredTool;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::openai::chat_messages::check_name;
use serde_json::{Map, Value, json};

/// Reads `system` and `messages`.
pub(crate) fn conversation(fields: &mut Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let mut out = Vec::new();
    if let Some(system) = fields.get("system") {
        let content = text(system, "system")?;
        out.push(json!({"role": "system", "content": content}));
    }
    fields.required("messages", "an array of messages")?;
    let items = fields.array("messages")?.unwrap_or_default();
    if items.is_empty() {
        let message = "messages is empty, expected at least one message";
        return Err(ApiError::field("invalid_value", "messages", message));
    }
    for (idx, item) in items.iter().enumerate() {
        let path = format!("messages[{idx}]");
        let mut message = Fields::new(item, &path)?;
        let role = message.required_string("role")?;
        let expected = "a string or an array of content blocks";
        let content = message.required("content", expected)?;
        let path = message.path("content");
        match role {
            "user" => user(content, &path, &mut out)?,
            "assistant" => out.push(assistant(content, &path)?),
            "system" => out.push(json!({"role": "system", "content": text(content, &path)?})),
            _ => {
                let expected = "one of user, assistant";
                return Err(message.wrong("role", &json!(role), expected));
            }
        }
    }
    if out
        .last()
        .is_some_and(|message| message["role"] == "assistant")
    {
        let why = "the last message is the assistant's, and continuing it needs a prefix; \
                   end with a user message";
        let path = format!("messages[{}]", items.len() - 1);
        return Err(ApiError::unsupported(path, why));
    }
    Ok(out)
}

fn blocks<'a>(content: &'a Value, path: &str) -> Result<&'a [Value], ApiError> {
    match content {
        Value::Array(blocks) => Ok(blocks),
        other => {
            let expected = "a string or an array of content blocks";
            Err(ApiError::value(path, other, expected))
        }
    }
}

/// A user's blocks: results of tools become messages of their own, in the order they stand.
fn user(content: &Value, path: &str, out: &mut Vec<Value>) -> Result<(), ApiError> {
    if content.is_string() {
        out.push(json!({"role": "user", "content": content}));
        return Ok(());
    }
    let mut said = String::new();
    let flush = |said: &mut String, out: &mut Vec<Value>| {
        if !said.is_empty() {
            out.push(json!({"role": "user", "content": std::mem::take(said)}));
        }
    };
    for (idx, block) in blocks(content, path)?.iter().enumerate() {
        let path = format!("{path}[{idx}]");
        let mut fields = Fields::new(block, &path)?;
        match fields.required_string("type")? {
            "text" => said.push_str(fields.required_string("text")?),
            "tool_result" => {
                flush(&mut said, out);
                let id = fields.required_string("tool_use_id")?;
                let content = match fields.get("content") {
                    Some(content) => text(content, &fields.path("content"))?,
                    None => json!(""),
                };
                let mut result = json!({"role": "tool", "tool_call_id": id, "content": content});
                if fields.bool("is_error")? == Some(true) {
                    result["is_error"] = json!(true);
                }
                out.push(result);
            }
            kind => return Err(unreadable(&path, kind)),
        }
    }
    flush(&mut said, out);
    Ok(())
}

/// An assistant's blocks, together one message.
fn assistant(content: &Value, path: &str) -> Result<Value, ApiError> {
    if content.is_string() {
        return Ok(json!({"role": "assistant", "content": content}));
    }
    let mut said = String::new();
    let mut reasoning = String::new();
    let mut calls = Vec::new();
    for (idx, block) in blocks(content, path)?.iter().enumerate() {
        let path = format!("{path}[{idx}]");
        let mut fields = Fields::new(block, &path)?;
        match fields.required_string("type")? {
            "text" => said.push_str(fields.required_string("text")?),
            "thinking" => reasoning.push_str(fields.required_string("thinking")?),
            // Only whoever encrypted it could read it.
            "redacted_thinking" => {}
            "tool_use" => {
                let id = fields.required_string("id")?;
                let name = fields.required_string("name")?;
                let input = match fields.object("input")? {
                    Some(input) => Value::Object(input.map().clone()),
                    None => json!({}),
                };
                calls.push(json!({
                    "id": id,
                    "type": "function",
                    "function": {"name": name, "arguments": input},
                }));
            }
            kind => return Err(unreadable(&path, kind)),
        }
    }
    let mut message = Map::new();
    message.insert("role".to_string(), json!("assistant"));
    message.insert("content".to_string(), json!(said));
    if !reasoning.is_empty() {
        message.insert("reasoning_content".to_string(), json!(reasoning));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_string(), Value::Array(calls));
    }
    Ok(Value::Object(message))
}

fn unreadable(path: &str, kind: &str) -> ApiError {
    let why = format!("a block of type {kind:?} can't stand here, or this model can't read it");
    ApiError::unsupported(path, &why)
}

/// Text, or text blocks, which are joined as they are.
fn text(content: &Value, path: &str) -> Result<Value, ApiError> {
    if content.is_string() {
        return Ok(content.clone());
    }
    let mut joined = String::new();
    for (idx, block) in blocks(content, path)?.iter().enumerate() {
        let path = format!("{path}[{idx}]");
        let mut fields = Fields::new(block, &path)?;
        match fields.required_string("type")? {
            "text" => joined.push_str(fields.required_string("text")?),
            kind => return Err(unreadable(&path, kind)),
        }
    }
    Ok(Value::String(joined))
}

/// Reads `tools`.
pub(crate) fn tools(items: &[Value], max: usize) -> Result<Vec<DeclaredTool>, ApiError> {
    if items.len() > max {
        let message = format!("tools has {} tools, expected at most {max}", items.len());
        return Err(ApiError::field("too_many", "tools", message));
    }
    let mut tools = Vec::with_capacity(items.len());
    for (idx, item) in items.iter().enumerate() {
        let mut fields = Fields::new(item, &format!("tools[{idx}]"))?;
        match fields.string("type")? {
            None | Some("custom") => {}
            Some(kind) => {
                let why = format!("{kind:?} would have to run on the server");
                return Err(ApiError::unsupported(fields.path("type"), &why));
            }
        }
        let name = fields.required_string("name")?;
        check_name(name, &fields.path("name"))?;
        let description = fields.string("description")?.unwrap_or_default();
        let schema = match fields.object("input_schema")? {
            Some(schema) => Value::Object(schema.map().clone()),
            None => return Err(fields.missing("input_schema", "a JSON schema")),
        };
        tools.push(DeclaredTool {
            strict: fields.bool("strict")?,
            listed: json!({
                "type": "function",
                "function": {"name": name, "description": description, "parameters": schema},
            }),
            schema_field: fields.path("input_schema"),
            strict_field: fields.path("strict"),
        });
    }
    Ok(tools)
}
