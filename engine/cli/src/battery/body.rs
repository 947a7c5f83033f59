//! The bodies of requests, for both APIs. Batteries are written in OpenAI's form; it must never send a message
//! to the other API that says something else there.

use super::plan::{Request, Route, Shortened};
use serde_json::{Map, Value, json};

/// Whether all messages and the choice of tools can be written for every route of the request.
///
/// # Errors
/// The first that can't.
pub fn check(request: &Request) -> Result<(), String> {
    if request.messages.is_empty() {
        return Err("messages is empty".to_owned());
    }
    for (idx, message) in request.messages.iter().enumerate() {
        let known = ["system", "developer", "user", "assistant", "tool"];
        let role = message["role"].as_str().unwrap_or("");
        if !known.contains(&role) {
            return Err(format!(
                "messages[{idx}].role is {:?}, expected {}",
                message["role"],
                known.join(", ")
            ));
        }
    }
    if let Some(choice) = &request.tool_choice {
        let words = ["auto", "none", "required"];
        let is_word = choice.as_str().is_some_and(|word| words.contains(&word));
        if !is_word && !choice["function"]["name"].is_string() {
            return Err(format!(
                "tool_choice is {}, expected auto, none, required or a function",
                Shortened(choice)
            ));
        }
        if request.tools.is_empty() && request.must_call() {
            return Err("tool_choice asks for a call, and there are no tools".to_owned());
        }
    }
    if request
        .cells
        .iter()
        .any(|(route, _)| *route == Route::Anthropic)
    {
        anthropic_messages(&request.messages)?;
    }
    Ok(())
}

/// The body of a request.
pub fn body(
    request: &Request,
    model: &str,
    route: Route,
    stream: bool,
    seed: Option<u64>,
) -> Value {
    let mut body = match route {
        Route::OpenAi => openai(request),
        Route::Anthropic => anthropic(request),
    };
    body["model"] = json!(model);
    body["max_tokens"] = json!(request.max_tokens);
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(seed) = seed {
        body["seed"] = json!(seed);
    }
    body["stream"] = json!(stream);
    for (field, value) in request.extra(route) {
        body[field] = value.clone();
    }
    body
}

fn openai(request: &Request) -> Value {
    let mut body = json!({"messages": request.messages});
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let mut function = json!({"name": tool.name, "parameters": tool.schema});
            if let Some(description) = &tool.description {
                function["description"] = json!(description);
            }
            json!({"type": "function", "function": function})
        });
        body["tools"] = tools.collect();
    }
    if let Some(choice) = &request.tool_choice {
        body["tool_choice"] = choice.clone();
    }
    body
}

fn anthropic(request: &Request) -> Value {
    // Read once when the battery was: what can't be written was refused.
    let (system, messages) = anthropic_messages(&request.messages).unwrap_or_default();
    let mut body = json!({"messages": messages});
    if !system.is_empty() {
        body["system"] = json!(system);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let mut written = json!({"name": tool.name, "input_schema": tool.schema});
            if let Some(description) = &tool.description {
                written["description"] = json!(description);
            }
            written
        });
        body["tools"] = tools.collect();
    }
    body["tool_choice"] = match &request.tool_choice {
        None => return body,
        Some(Value::String(word)) => match word.as_str() {
            "required" => json!({"type": "any"}),
            other => json!({"type": other}),
        },
        Some(choice) => json!({"type": "tool", "name": choice["function"]["name"]}),
    };
    body
}

/// System prompt and messages as Anthropic writes them.
fn anthropic_messages(messages: &[Value]) -> Result<(String, Vec<Value>), String> {
    let mut system = Vec::new();
    let mut written: Vec<Value> = Vec::new();
    for (idx, message) in messages.iter().enumerate() {
        let wrong = |what: &str| format!("messages[{idx}] can't go to anthropic: {what}");
        match message["role"].as_str().unwrap_or_default() {
            "system" | "developer" => {
                let text = text(&message["content"]);
                system.push(text.ok_or_else(|| wrong("its content is no text"))?);
            }
            "tool" => {
                let id = message["tool_call_id"].as_str();
                let id = id.ok_or_else(|| wrong("it has no tool_call_id"))?;
                let content = text(&message["content"]);
                let content = content.ok_or_else(|| wrong("its content is no text"))?;
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
                let last = written.last_mut().filter(|last| last["role"] == "user");
                match last.and_then(|last| last["content"].as_array_mut()) {
                    Some(blocks) => blocks.push(result),
                    None => written.push(json!({"role": "user", "content": [result]})),
                }
            }
            "assistant" => {
                let content = assistant(message).map_err(|what| wrong(&what))?;
                written.push(json!({"role": "assistant", "content": content}));
            }
            role => written.push(json!({"role": role, "content": message["content"]})),
        }
    }
    Ok((system.join("\n\n"), written))
}

/// The blocks of the assistant's own message.
fn assistant(message: &Value) -> Result<Vec<Value>, String> {
    let mut blocks = Vec::new();
    if let Some(text) = text(&message["content"]).filter(|text| !text.is_empty()) {
        blocks.push(json!({"type": "text", "text": text}));
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let (id, function) = (&call["id"], &call["function"]);
        let arguments = function["arguments"].as_str().unwrap_or_default();
        let input: Map<String, Value> = serde_json::from_str(arguments)
            .map_err(|error| format!("arguments of a call are no JSON object: {error}"))?;
        if !id.is_string() || !function["name"].is_string() {
            return Err("a call has no id or no name".to_owned());
        }
        let name = &function["name"];
        blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }
    match blocks.is_empty() {
        true => Err("the assistant's message is empty".to_owned()),
        false => Ok(blocks),
    }
}

/// The text of a content: a string, or text parts.
fn text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| part["text"].as_str())
            .collect::<Option<Vec<&str>>>()
            .map(|parts| parts.concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Overrides, Plan};
    use super::*;

    const TEXT: &str = r#"
[[request]]
name = "long"
routes = ["openai", "anthropic"]
temperature = 0.5
max_tokens = 32
tool_choice = { type = "function", function = { name = "go" } }
extra = { top_p = 0.9 }
[[request.tools]]
type = "function"
function = { name = "go", description = "Goes.", parameters = { type = "object" } }
[[request.messages]]
role = "system"
content = "Be short."
[[request.messages]]
role = "user"
content = "Go twice."
[[request.messages]]
role = "assistant"
tool_calls = [
  { id = "a", type = "function", function = { name = "go", arguments = "{\"far\":1}" } },
  { id = "b", type = "function", function = { name = "go", arguments = "{}" } },
]
[[request.messages]]
role = "tool"
tool_call_id = "a"
content = "gone"
[[request.messages]]
role = "tool"
tool_call_id = "b"
content = [{ type = "text", text = "gone too" }]
"#;

    #[test]
    fn both_apis_are_asked_the_same() {
        let plan = Plan::read(TEXT, &Overrides::default()).expect("a battery");
        let request = &plan.requests[0];
        let openai = body(request, "m", Route::OpenAi, true, Some(3));
        assert_eq!(openai["messages"].as_array().map(Vec::len), Some(5));
        assert_eq!(openai["tools"][0]["function"]["name"], "go");
        assert_eq!(openai["tool_choice"]["function"]["name"], "go");
        let anthropic = body(request, "m", Route::Anthropic, true, Some(3));
        for body in [&openai, &anthropic] {
            assert_eq!((&body["seed"], &body["stream"]), (&json!(3), &json!(true)));
            assert_eq!((&body["model"], &body["top_p"]), (&json!("m"), &json!(0.9)));
            assert_eq!(
                (&body["max_tokens"], &body["temperature"]),
                (&json!(32), &json!(0.5))
            );
        }
        assert_eq!(anthropic["system"], "Be short.");
        assert_eq!(
            anthropic["tool_choice"],
            json!({"type": "tool", "name": "go"})
        );
        let tool = json!({"name": "go", "input_schema": {"type": "object"},
                          "description": "Goes."});
        assert_eq!(anthropic["tools"], json!([tool]));
        let expected = json!([
            {"role": "user", "content": "Go twice."},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "go", "input": {"far": 1}},
                {"type": "tool_use", "id": "b", "name": "go", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "gone"},
                {"type": "tool_result", "tool_use_id": "b", "content": "gone too"},
            ]},
        ]);
        assert_eq!(anthropic["messages"], expected);
    }

    #[test]
    fn what_only_one_api_can_be_told() {
        let broken = TEXT.replace("{\\\"far\\\":1}", "far");
        let error = Plan::read(&broken, &Overrides::default()).expect_err("no arguments");
        assert!(
            error.contains("messages[2] can't go to anthropic"),
            "{error}"
        );
        let only_openai = broken.replace(", \"anthropic\"", "");
        Plan::read(&only_openai, &Overrides::default()).expect("a broken history may be sent");
    }
}
