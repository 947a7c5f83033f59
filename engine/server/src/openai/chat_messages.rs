//! The messages and tools of a chat request, to the shape that templates read.
//! A part that can't be shown to the model is refused by name, never left out.

use crate::constraint::{AskedCalls, DeclaredTool, unknown_tool};
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use lockstep_grammar::ToolChoice;
use serde_json::{Map, Value, json};

/// Reads `messages`.
pub(crate) fn messages(items: &[Value]) -> Result<Vec<Value>, ApiError> {
    if items.is_empty() {
        let message = "messages is empty, expected at least one message";
        return Err(ApiError::field("invalid_value", "messages", message));
    }
    let numbered = items.iter().enumerate();
    numbered
        .map(|(idx, item)| message(item, &format!("messages[{idx}]")))
        .collect()
}

fn message(item: &Value, path: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::new(item, path)?;
    let role = fields.required_string("role")?;
    let mut message = Map::new();
    message.insert("role".to_string(), json!(role));
    match role {
        "system" | "developer" | "user" => {
            let content = fields.required("content", "a string or an array of text parts")?;
            message.insert(
                "content".to_string(),
                text(content, &fields.path("content"))?,
            );
            if let Some(name) = fields.string("name")? {
                message.insert("name".to_string(), json!(name));
            }
        }
        "assistant" => assistant(&mut fields, &mut message)?,
        "tool" => {
            let content = fields.required("content", "a string or an array of text parts")?;
            message.insert(
                "content".to_string(),
                text(content, &fields.path("content"))?,
            );
            let id = fields.required_string("tool_call_id")?;
            message.insert("tool_call_id".to_string(), json!(id));
            if let Some(name) = fields.string("name")? {
                message.insert("name".to_string(), json!(name));
            }
        }
        _ => {
            let expected = "one of system, developer, user, assistant, tool";
            return Err(fields.wrong("role", &json!(role), expected));
        }
    }
    Ok(Value::Object(message))
}

fn assistant(fields: &mut Fields<'_>, message: &mut Map<String, Value>) -> Result<(), ApiError> {
    fields.refuse("function_call", |_| false, "send tool_calls instead")?;
    fields.refuse("audio", |_| false, "this server has no audio")?;
    let path = fields.path("content");
    let content = fields
        .get("content")
        .map(|content| text(content, &path))
        .transpose()?;
    let reasoning = match fields.string("reasoning_content")? {
        Some(reasoning) => Some(reasoning),
        None => fields.string("reasoning")?,
    };
    let calls = fields.array("tool_calls")?.unwrap_or_default();
    if content.is_none() && reasoning.is_none() && calls.is_empty() {
        return Err(fields.missing("content", "content, reasoning_content or tool_calls"));
    }
    message.insert("content".to_string(), content.unwrap_or_else(|| json!("")));
    if let Some(reasoning) = reasoning {
        message.insert("reasoning_content".to_string(), json!(reasoning));
    }
    if !calls.is_empty() {
        let path = fields.path("tool_calls");
        let numbered = calls.iter().enumerate();
        let calls: Result<Vec<Value>, ApiError> = numbered
            .map(|(idx, call)| tool_call(call, &format!("{path}[{idx}]")))
            .collect();
        message.insert("tool_calls".to_string(), Value::Array(calls?));
    }
    Ok(())
}

/// A call of an earlier turn. Templates read arguments as an object, the API has them as text.
fn tool_call(call: &Value, path: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::new(call, path)?;
    expect_function(&mut fields)?;
    let id = fields.string("id")?.unwrap_or_default();
    let mut function = fields
        .object("function")?
        .ok_or_else(|| fields.missing("function", "an object"))?;
    let name = function.required_string("name")?;
    let arguments = match function.get("arguments") {
        None => json!({}),
        Some(Value::Object(object)) => Value::Object(object.clone()),
        Some(value) => {
            let text = value.as_str().unwrap_or("");
            let blank = value.is_string() && text.trim().is_empty();
            let parsed = serde_json::from_str(text).ok().filter(Value::is_object);
            match parsed {
                Some(object) => object,
                None if blank => json!({}),
                None => {
                    let expected = "the text of a JSON object";
                    return Err(function.wrong("arguments", value, expected));
                }
            }
        }
    };
    Ok(json!({
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }))
}

/// The one type of tool that there is.
fn expect_function(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    match fields.string("type")? {
        None | Some("function") => Ok(()),
        Some(other) => Err(fields.wrong("type", &json!(other), "\"function\"")),
    }
}

/// A content: a string, or text parts, which are joined as they are.
pub(crate) fn text(content: &Value, path: &str) -> Result<Value, ApiError> {
    let parts = match content {
        Value::String(_) => return Ok(content.clone()),
        Value::Array(parts) => parts,
        other => {
            return Err(ApiError::value(
                path,
                other,
                "a string or an array of text parts",
            ));
        }
    };
    let mut joined = String::new();
    for (idx, part) in parts.iter().enumerate() {
        let path = format!("{path}[{idx}]");
        let mut fields = Fields::new(part, &path)?;
        match fields.required_string("type")? {
            "text" | "input_text" | "output_text" => {
                joined.push_str(fields.required_string("text")?)
            }
            "refusal" => joined.push_str(fields.required_string("refusal")?),
            kind => {
                let why = format!("it is of type {kind:?}, and this model reads text only");
                return Err(ApiError::unsupported(path, &why));
            }
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
    let numbered = items.iter().enumerate();
    numbered
        .map(|(idx, item)| {
            let mut fields = Fields::new(item, &format!("tools[{idx}]"))?;
            expect_function(&mut fields)?;
            let mut function = fields
                .object("function")?
                .ok_or_else(|| fields.missing("function", "an object"))?;
            let name = function.required_string("name")?;
            check_name(name, &function.path("name"))?;
            function.string("description")?;
            function.object("parameters")?;
            let strict = function.bool("strict")?;
            let mut listed = item.clone();
            if let Some(function) = listed["function"].as_object_mut() {
                function.shift_remove("strict");
            }
            Ok(DeclaredTool {
                listed,
                strict,
                schema_field: function.path("parameters"),
                strict_field: function.path("strict"),
            })
        })
        .collect()
}

/// Reads `tool_choice` and `parallel_tool_calls`.
pub(crate) fn calls(
    fields: &mut Fields<'_>,
    tools: &[DeclaredTool],
) -> Result<AskedCalls, ApiError> {
    let mut calls = tool_choice(fields, tools)?;
    if fields.bool("parallel_tool_calls")? == Some(false) {
        calls.single = Some(fields.path("parallel_tool_calls"));
    }
    Ok(calls)
}

fn tool_choice(fields: &mut Fields<'_>, tools: &[DeclaredTool]) -> Result<AskedCalls, ApiError> {
    let expected = "one of none, auto, required, or an object naming a function";
    let choice = match fields.get("tool_choice") {
        None => ToolChoice::Auto,
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => ToolChoice::Forbidden,
            "auto" => ToolChoice::Auto,
            "required" => required(tools)?,
            _ => return Err(fields.wrong("tool_choice", &json!(choice), expected)),
        },
        Some(choice @ Value::Object(_)) => {
            return chosen_tools(&mut Fields::new(choice, "tool_choice")?, tools);
        }
        Some(other) => return Err(fields.wrong("tool_choice", other, expected)),
    };
    Ok(AskedCalls {
        choice,
        ..AskedCalls::auto()
    })
}

/// A call can only be required where a tool is declared.
fn required(tools: &[DeclaredTool]) -> Result<ToolChoice, ApiError> {
    if tools.is_empty() {
        let message = "tools is missing, expected at least one, as tool_choice is required";
        return Err(ApiError::field("missing_field", "tools", message));
    }
    Ok(ToolChoice::Required)
}

/// A `tool_choice` that is an object.
fn chosen_tools(choice: &mut Fields<'_>, tools: &[DeclaredTool]) -> Result<AskedCalls, ApiError> {
    match choice.required_string("type")? {
        "function" => Ok(AskedCalls {
            choice: ToolChoice::Named(function_name(choice, tools)?),
            ..AskedCalls::auto()
        }),
        "allowed_tools" => {
            let expected = "an object with mode and tools";
            let Some(mut allowed) = choice.object("allowed_tools")? else {
                return Err(choice.missing("allowed_tools", expected));
            };
            let mode = allowed.required_string("mode")?;
            let path = allowed.path("tools");
            allowed.required("tools", "an array of tools")?;
            let items = allowed.array("tools")?.unwrap_or_default();
            let numbered = items.iter().enumerate();
            let names = numbered.map(|(idx, item)| {
                function_name(&mut Fields::new(item, &format!("{path}[{idx}]"))?, tools)
            });
            let names: Vec<String> = names.collect::<Result<_, _>>()?;
            if names.is_empty() {
                return Err(ApiError::value(path, &json!([]), "at least one tool"));
            }
            Ok(AskedCalls {
                choice: match mode {
                    "auto" => ToolChoice::Auto,
                    "required" => required(tools)?,
                    other => {
                        let expected = "one of auto, required";
                        return Err(allowed.wrong("mode", &json!(other), expected));
                    }
                },
                allowed: Some(names),
                single: None,
            })
        }
        other => {
            let expected = "one of function, allowed_tools";
            Err(choice.wrong("type", &json!(other), expected))
        }
    }
}

/// The name in `{"type": "function", "function": {"name": ...}}`.
fn function_name(fields: &mut Fields<'_>, tools: &[DeclaredTool]) -> Result<String, ApiError> {
    expect_function(fields)?;
    let Some(mut function) = fields.object("function")? else {
        return Err(fields.missing("function", "an object with a name"));
    };
    let name = function.required_string("name")?;
    match tools.iter().any(|tool| tool.name() == name) {
        true => Ok(name.to_string()),
        false => Err(unknown_tool(&function.path("name"), name, tools)),
    }
}

/// A tool's name goes into prompts and tags as it is.
pub(crate) fn check_name(name: &str, path: &str) -> Result<(), ApiError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    if (1..=128).contains(&name.len()) && name.chars().all(fine) {
        return Ok(());
    }
    let expected = "1 to 128 letters, digits, or any of _ - . : /";
    Err(ApiError::value(path, &json!(name), expected))
}
