//! Every 4xx by name: what is wrong, where, and what was expected.

use crate::harness::*;
use expect_test::{Expect, expect};
use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};
use std::fmt::Write;

/// One line per answer: status, param, code, message.
fn line(answer: &Answer) -> String {
    let json = answer.json();
    let error = &json["error"];
    let text = |name: &str| error[name].as_str().unwrap_or("-").to_string();
    format!(
        "{} {} {}: {}\n",
        answer.status,
        text("param"),
        text("code"),
        text("message")
    )
}

/// Sends variants of a body, each with some fields replaced.
async fn check(path: &str, body: Value, variants: Vec<Value>, expected: Expect) {
    let server = Setup::new().start();
    let mut lines = String::new();
    for fields in variants {
        let answer = server.post(path, &with(&body, fields)).await;
        lines.push_str(&line(&answer));
    }
    expected.assert_eq(&lines);
}

#[tokio::test]
async fn sampling_fields() {
    let variants = vec![
        json!({"temperature": 3}),
        json!({"temperature": "hot"}),
        json!({"top_p": 0}),
        json!({"top_k": -2}),
        json!({"top_k": 1.5}),
        json!({"min_p": 1.1}),
        json!({"frequency_penalty": -3}),
        json!({"presence_penalty": []}),
        json!({"repetition_penalty": 0}),
        json!({"logit_bias": {"x": 1}}),
        json!({"logit_bias": {"1": 101}}),
        json!({"logit_bias": {"1": 1, "01": 1}}),
        json!({"logit_bias": [1]}),
        json!({"seed": 1.5}),
        json!({"seed": 9_223_372_036_854_775_808_u64}),
    ];
    check("/v1/chat/completions", hello(), variants, expect![[r#"
        400 temperature invalid_value: temperature is 3, expected a number from 0 to 2
        400 temperature invalid_value: temperature is "hot", expected a number from 0 to 2
        400 top_p invalid_value: top_p is 0, expected a number above 0 and up to 1
        400 top_k invalid_value: top_k is -2, expected a whole number from -1 to 4294967295
        400 top_k invalid_value: top_k is 1.5, expected a whole number from -1 to 4294967295
        400 min_p invalid_value: min_p is 1.1, expected a number from 0 to 1
        400 frequency_penalty invalid_value: frequency_penalty is -3, expected a number from -2 to 2
        400 presence_penalty invalid_value: presence_penalty is [], expected a number from -2 to 2
        400 repetition_penalty invalid_value: repetition_penalty is 0, expected a number above 0 and up to 100
        400 logit_bias.x invalid_value: logit_bias has the key "x", expected a token id from 0 to 2047
        400 logit_bias.1 invalid_value: logit_bias.1 is 101, expected a number from -100 to 100
        400 logit_bias invalid_value: logit_bias names token 1 twice
        400 logit_bias invalid_value: logit_bias is [1], expected an object
        400 seed invalid_value: seed is 1.5, expected a whole number of at least -9223372036854775808
        400 seed invalid_value: seed is 9223372036854775808, expected a whole number of at least -9223372036854775808
    "#]]).await;
}

#[tokio::test]
async fn limits_of_the_answer() {
    let variants = vec![
        json!({"n": 0}),
        json!({"n": 17}),
        json!({"max_tokens": 0}),
        json!({"max_completion_tokens": -1}),
        json!({"stop": [""]}),
        json!({"stop": 7}),
        json!({"stop": ["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"]}),
        json!({"logprobs": 3}),
        json!({"top_logprobs": 3}),
        json!({"logprobs": true, "top_logprobs": 21}),
        json!({"stream": "yes"}),
        json!({"stream_options": {"include_usage": true}}),
        json!({"reasoning_effort": "extreme"}),
        json!({"reasoning": {"max_tokens": -1}}),
        json!({"chat_template_kwargs": {"messages": []}}),
    ];
    check("/v1/chat/completions", hello(), variants, expect![[r#"
        400 n invalid_value: n is 0, expected a whole number from 1 to 16
        400 n invalid_value: n is 17, expected a whole number from 1 to 16
        400 max_tokens invalid_value: max_tokens is 0, expected a whole number from 1 to 4294967295
        400 max_completion_tokens invalid_value: max_completion_tokens is -1, expected a whole number from 1 to 4294967295
        400 stop[0] invalid_value: stop[0] is "", expected a string of 1 to 512 bytes
        400 stop invalid_value: stop is 7, expected a string of 1 to 512 bytes
        400 stop too_many: stop has 17 strings, expected at most 16
        400 logprobs invalid_value: logprobs is 3, expected true or false
        400 top_logprobs invalid_value: top_logprobs is 3, expected logprobs: true beside it
        400 top_logprobs invalid_value: top_logprobs is 21, expected a whole number from 0 to 20
        400 stream invalid_value: stream is "yes", expected true or false
        400 stream_options invalid_value: stream_options is set, expected it only with stream: true
        400 reasoning_effort invalid_value: reasoning_effort is "extreme", expected one of none, minimal, low, medium, high, xhigh, max
        400 reasoning.max_tokens invalid_value: reasoning.max_tokens is -1, expected a whole number from 0 to 4294967295
        400 chat_template_kwargs.messages unsupported_field: chat_template_kwargs.messages is not supported: the server fills it in
    "#]]).await;
}

#[tokio::test]
async fn messages() {
    let user = json!({"role": "user", "content": "hi"});
    let said = |fields: Value| json!({"messages": [user, with(&json!({"role": "assistant"}), fields), user]});
    let call = |function: Value| said(json!({"tool_calls": [{"id": "a", "function": function}]}));
    let variants = vec![
        json!({"messages": null}),
        json!({"messages": "hi"}),
        json!({"messages": []}),
        json!({"messages": [user, 3]}),
        json!({"messages": [{"content": "hi"}]}),
        json!({"messages": [{"role": "robot", "content": "hi"}]}),
        json!({"messages": [{"role": "user"}]}),
        json!({"messages": [{"role": "user", "content": 5}]}),
        json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:,"}},
        ]}]}),
        json!({"messages": [{"role": "tool", "content": "x"}]}),
        said(json!({})),
        said(json!({"content": "x", "function_call": {"name": "f"}})),
        call(json!({"arguments": "{}"})),
        call(json!({"name": "f", "arguments": "[1]"})),
        call(json!({"name": "f", "arguments": "{\"a\": "})),
        call(json!({"name": "f", "arguments": 7})),
    ];
    check("/v1/chat/completions", hello(), variants, expect![[r#"
        400 messages missing_field: messages is missing, expected an array of messages
        400 messages invalid_value: messages is "hi", expected an array
        400 messages invalid_value: messages is empty, expected at least one message
        400 messages[1] invalid_value: messages[1] is 3, expected an object
        400 messages[0].role missing_field: messages[0].role is missing, expected a string
        400 messages[0].role invalid_value: messages[0].role is "robot", expected one of system, developer, user, assistant, tool
        400 messages[0].content missing_field: messages[0].content is missing, expected a string or an array of text parts
        400 messages[0].content invalid_value: messages[0].content is 5, expected a string or an array of text parts
        400 messages[0].content[1] unsupported_field: messages[0].content[1] is not supported: it is of type "image_url", and this model reads text only
        400 messages[0].tool_call_id missing_field: messages[0].tool_call_id is missing, expected a string
        400 messages[1].content missing_field: messages[1].content is missing, expected content, reasoning_content or tool_calls
        400 messages[1].function_call unsupported_field: messages[1].function_call is not supported: send tool_calls instead
        400 messages[1].tool_calls[0].function.name missing_field: messages[1].tool_calls[0].function.name is missing, expected a string
        400 messages[1].tool_calls[0].function.arguments invalid_value: messages[1].tool_calls[0].function.arguments is "[1]", expected the text of a JSON object
        400 messages[1].tool_calls[0].function.arguments invalid_value: messages[1].tool_calls[0].function.arguments is "{\"a\": ", expected the text of a JSON object
        400 messages[1].tool_calls[0].function.arguments invalid_value: messages[1].tool_calls[0].function.arguments is 7, expected the text of a JSON object
    "#]]).await;
}

#[tokio::test]
async fn tools_and_constraints() {
    let tool = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    let choice = |choice: Value| json!({"tools": weather_tools(), "tool_choice": choice});
    let twice = [weather_tools()[0].clone(), weather_tools()[0].clone()];
    let variants = vec![
        json!({"tools": {}}),
        json!({"tools": [{"type": "retrieval"}]}),
        json!({"tools": [{"type": "function"}]}),
        tool(json!({"name": "a b"})),
        tool(json!({"name": "f", "parameters": "none"})),
        tool(json!({"name": "f", "strict": true})),
        json!({"tools": twice}),
        choice(json!("required")),
        choice(json!("maybe")),
        choice(json!({"type": "function", "function": {"name": "weather"}})),
        json!({"tool_choice": "required"}),
        json!({"tools": weather_tools(), "parallel_tool_calls": false}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
        json!({"response_format": {"type": "poem"}}),
        json!({"guided_regex": "a+"}),
        json!({"structured_outputs": {"choice": ["a"]}}),
        json!({"functions": []}),
        json!({"modalities": ["audio"]}),
        json!({"model": "other"}),
        json!({"model": 7}),
    ];
    check("/v1/chat/completions", hello(), variants, expect![[r#"
        400 tools invalid_value: tools is {}, expected an array
        400 tools[0].type invalid_value: tools[0].type is "retrieval", expected "function"
        400 tools[0].function missing_field: tools[0].function is missing, expected an object
        400 tools[0].function.name invalid_value: tools[0].function.name is "a b", expected 1 to 128 letters, digits, or any of _ - . : /
        400 tools[0].function.parameters invalid_value: tools[0].function.parameters is "none", expected an object
        400 tools[0].function.strict unsupported_field: tools[0].function.strict is not supported: it needs the grammar engine, which this server does not have yet
        400 tools[1] invalid_tool: tool `weather`: declared twice, expected each name once
        400 tool_choice unsupported_field: tool_choice is not supported: "required": it needs the grammar engine, which this server does not have yet
        400 tool_choice invalid_value: tool_choice is "maybe", expected one of none, auto, required, or an object naming a function
        400 tool_choice unsupported_field: tool_choice is not supported: a named function: it needs the grammar engine, which this server does not have yet
        400 tools missing_field: tools is missing, expected at least one, as tool_choice is required
        400 parallel_tool_calls unsupported_field: parallel_tool_calls is not supported: it needs the grammar engine, which this server does not have yet
        400 response_format.type unsupported_field: response_format.type is not supported: "json_object": it needs the grammar engine, which this server does not have yet
        400 response_format.type unsupported_field: response_format.type is not supported: "json_schema": it needs the grammar engine, which this server does not have yet
        400 response_format.type invalid_value: response_format.type is "poem", expected one of text, json_object, json_schema
        400 guided_regex unsupported_field: guided_regex is not supported: it needs the grammar engine, which this server does not have yet
        400 structured_outputs unsupported_field: structured_outputs is not supported: it needs the grammar engine, which this server does not have yet
        400 functions unsupported_field: functions is not supported: send tools and tool_choice instead
        400 modalities unsupported_field: modalities is not supported: this model writes text only
        404 model model_not_found: model is "other", this server has tiny
        400 model invalid_value: model is 7, expected a string
    "#]]).await;
}

#[tokio::test]
async fn a_prompt_that_does_not_fit() {
    let long = "hello ".repeat(4000);
    let variants = vec![json!({"messages": [{"role": "user", "content": long}]})];
    check("/v1/chat/completions", hello(), variants, expect![[r#"
        400 messages context_length_exceeded: the prompt has 16005 tokens and 1 more were asked for; prompt and output together can have at most 2048
    "#]]).await;
}

#[tokio::test]
async fn completions() {
    let variants = vec![
        json!({"prompt": null}),
        json!({"prompt": ""}),
        json!({"prompt": []}),
        json!({"prompt": 7}),
        json!({"prompt": [[1, 2], {}]}),
        json!({"prompt": [1, 99_999_999]}),
        json!({"prompt": [1, "a"]}),
        json!({"suffix": "end"}),
        json!({"echo": true, "logprobs": 1}),
        json!({"best_of": 3}),
        json!({"logprobs": 6}),
        json!({"max_tokens": 0}),
    ];
    check(
        "/v1/completions",
        json!({"prompt": "a"}),
        variants,
        expect![[r#"
            400 prompt missing_field: prompt is missing, expected a string, an array of strings, or one or more arrays of token ids
            400 prompt empty_prompt: prompt has no tokens, expected at least one
            400 prompt too_many: prompt has 0 prompts, expected 1 to 64
            400 prompt invalid_value: prompt is 7, expected a string, an array of strings, or one or more arrays of token ids
            400 prompt[1] invalid_value: prompt[1] is {}, expected a string or an array of token ids
            400 prompt[1] invalid_value: prompt[1] is 99999999, expected a token id from 0 to 2047
            400 prompt[1] invalid_value: prompt[1] is "a", expected a token id from 0 to 2047
            400 suffix unsupported_field: suffix is not supported: this model can't fill in a middle
            400 echo unsupported_field: echo is not supported: together with logprobs: those of a prompt are not computed
            400 best_of unsupported_field: best_of is not supported: each of n choices is drawn once and all are returned
            400 logprobs invalid_value: logprobs is 6, expected a whole number from 0 to 5
            400 max_tokens invalid_value: max_tokens is 0, expected a whole number from 1 to 4294967295
        "#]],
    )
    .await;
}

#[tokio::test]
async fn anthropic_messages() {
    let body = json!({"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]});
    let content = |blocks: Value| json!({"messages": [{"role": "user", "content": blocks}]});
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    let variants = vec![
        json!({"max_tokens": null}),
        json!({"max_tokens": 0}),
        json!({"messages": null}),
        json!({"messages": [{"role": "robot", "content": "x"}]}),
        json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}),
        content(json!([{"type": "image", "source": {}}])),
        content(json!([{"type": "tool_result"}])),
        content(json!(3)),
        json!({"system": 5}),
        json!({"tools": [{"name": "f"}]}),
        json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        json!({"tools": [tool], "tool_choice": {"type": "any"}}),
        json!({"tools": [tool], "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
        json!({"tool_choice": {"type": "perhaps"}}),
        json!({"thinking": {"type": "enabled"}}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 10}}),
        json!({"thinking": {"type": "often"}}),
        json!({"stop_sequences": [1]}),
        json!({"temperature": -1}),
        json!({"model": "other"}),
    ];
    check("/v1/messages", body, variants, expect![[r#"
        400 max_tokens missing_field: max_tokens is missing, expected a whole number of at least 1
        400 max_tokens invalid_value: max_tokens is 0, expected a whole number from 1 to 4294967295
        400 messages missing_field: messages is missing, expected an array of messages
        400 messages[0].role invalid_value: messages[0].role is "robot", expected one of user, assistant
        400 messages[1] unsupported_field: messages[1] is not supported: the last message is the assistant's, and continuing it needs a prefix; end with a user message
        400 messages[0].content[0] unsupported_field: messages[0].content[0] is not supported: a block of type "image" can't stand here, or this model can't read it
        400 messages[0].content[0].tool_use_id missing_field: messages[0].content[0].tool_use_id is missing, expected a string
        400 messages[0].content invalid_value: messages[0].content is 3, expected a string or an array of content blocks
        400 system invalid_value: system is 5, expected a string or an array of content blocks
        400 tools[0].input_schema missing_field: tools[0].input_schema is missing, expected a JSON schema
        400 tools[0].type unsupported_field: tools[0].type is not supported: "web_search_20250305" would have to run on the server
        400 tool_choice.type unsupported_field: tool_choice.type is not supported: "any": it needs the grammar engine, which this server does not have yet
        400 tool_choice.disable_parallel_tool_use unsupported_field: tool_choice.disable_parallel_tool_use is not supported: it needs the grammar engine, which this server does not have yet
        400 tool_choice.type invalid_value: tool_choice.type is "perhaps", expected one of auto, none, any, tool
        400 thinking.budget_tokens missing_field: thinking.budget_tokens is missing, expected a whole number of at least 1
        400 thinking.budget_tokens invalid_value: thinking.budget_tokens is 10, expected less than max_tokens, 10
        400 thinking.type invalid_value: thinking.type is "often", expected one of enabled, adaptive, disabled
        400 stop_sequences[0] invalid_value: stop_sequences[0] is 1, expected a string of 1 to 512 bytes
        400 temperature invalid_value: temperature is -1, expected a number from 0 to 2
        404 model model_not_found: model is "other", this server has tiny
    "#]]).await;
}

#[tokio::test]
async fn token_routes() {
    let variants = vec![
        json!({}),
        json!({"prompt": "a", "messages": []}),
        json!({"prompt": 1}),
    ];
    check(
        "/tokenize",
        json!({}),
        variants,
        expect![[r#"
        400 prompt missing_field: prompt is missing, expected a string, or messages
        400 prompt invalid_value: both prompt and messages are there, expected one of them
        400 prompt invalid_value: prompt is 1, expected a string
    "#]],
    )
    .await;
    let variants = vec![
        json!({}),
        json!({"tokens": "a"}),
        json!({"tokens": [1, -1]}),
    ];
    check(
        "/detokenize",
        json!({}),
        variants,
        expect![[r#"
        400 tokens missing_field: tokens is missing, expected an array of token ids
        400 tokens invalid_value: tokens is "a", expected an array
        400 tokens[1] invalid_value: tokens[1] is -1, expected a token id from 0 to 2047
    "#]],
    )
    .await;
}

#[tokio::test]
async fn bodies_and_routes() {
    let mut setup = Setup::new();
    setup.config.limits.body_bytes_max = 1000;
    let server = setup.start();
    let deep = "[".repeat(200);
    let mut lines = String::new();
    for body in [
        &b""[..],
        b"{\"model\": \"tiny\",\n \"messages\": [}",
        b"[1]",
        b"{\"model\": \"\xff\"}",
        deep.as_bytes(),
        &[b' '; 1001],
        b"{\"model\": \"\\ud800\"}",
    ] {
        let request = Request::post("/v1/chat/completions").body(Full::from(body.to_vec()));
        lines.push_str(&line(&server.ask(request.expect("a request")).await));
    }
    let typed = Request::post("/v1/messages")
        .header("content-type", "text/plain")
        .body(Full::from("{}"));
    lines.push_str(&line(&server.ask(typed.expect("a request")).await));
    for (method, path) in [
        ("GET", "/v1/chat/completions"),
        ("POST", "/health"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/nothing"),
        ("POST", "/v1/messages/batches"),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Full::default());
        let answer = server.ask(request.expect("a request")).await;
        if let Some(allow) = answer.headers.get("allow") {
            let _ = write!(lines, "[{}] ", allow.to_str().unwrap_or("?"));
        }
        lines.push_str(&line(&answer));
    }
    expect![[r#"
        400 - invalid_json: the body is not JSON: EOF while parsing a value, at line 1, column 0
        400 - invalid_json: the body is not JSON: expected value, at line 2, column 15
        400 - invalid_json: the body is [1], expected a JSON object
        400 - invalid_utf8: the body is not UTF-8: byte 11 is part of no character
        400 - invalid_json: the body is not JSON: recursion limit exceeded, at line 1, column 128
        413 - body_too_large: the body has 1001 bytes, expected at most 1000
        400 - invalid_json: the body is not JSON: unexpected end of hex escape, at line 1, column 18
        415 content-type unsupported_media_type: content-type is "text/plain", expected application/json
        [POST] 405 - wrong_method: /v1/chat/completions was asked with GET, expected POST
        [GET] 405 - wrong_method: /health was asked with POST, expected GET
        404 - unknown_route: /v1/responses is not served yet, use /v1/chat/completions
        404 - unknown_route: there is no route "/v1/nothing"; / lists what there is
        404 - unknown_route: there is no route "/v1/messages/batches"; / lists what there is
    "#]].assert_eq(&lines);
}
