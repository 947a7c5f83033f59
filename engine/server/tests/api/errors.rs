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
        json!({"speculate": "ngrams"}),
        json!({"speculate": "ngram:16"}),
        json!({"speculate": "forced,mtp"}),
        json!({"speculate": 7}),
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
        400 speculate invalid_value: speculate: "ngrams" is no drafter, expected off, or some of forced, suffix, ngram, mtp, draft_model, each with a depth of 1 to 15 where wanted: ngram,forced:7
        400 speculate invalid_value: speculate: "ngram:16" is no drafter, expected off, or some of forced, suffix, ngram, mtp, draft_model, each with a depth of 1 to 15 where wanted: ngram,forced:7
        400 speculate invalid_value: speculate: this server has no mtp drafter
        400 speculate invalid_value: speculate is 7, expected a string
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
async fn tools() {
    let tool = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    let choice = |choice: Value| json!({"tools": weather_tools(), "tool_choice": choice});
    let twice = [weather_tools()[0].clone(), weather_tools()[0].clone()];
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let allowed = |mode: &str, tools: Value| {
        choice(json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}))
    };
    let variants = vec![
        json!({"tools": {}}),
        json!({"tools": [{"type": "retrieval"}]}),
        json!({"tools": [{"type": "function"}]}),
        tool(json!({"name": "a b"})),
        tool(json!({"name": "f", "parameters": "none"})),
        tool(json!({"name": "f", "strict": "yes"})),
        json!({"tools": twice}),
        choice(json!("maybe")),
        choice(json!(7)),
        choice(named("other")),
        choice(json!({"type": "custom", "custom": {"name": "weather"}})),
        choice(json!({"type": "function"})),
        choice(json!({"type": "allowed_tools"})),
        allowed("auto", json!([])),
        allowed("auto", json!([named("other")])),
        allowed("any", json!([named("weather")])),
        json!({"tool_choice": "required"}),
        json!({"tool_choice": named("weather")}),
        json!({"tools": weather_tools(), "parallel_tool_calls": "no"}),
        with(&choice(json!("required")), json!({"ignore_eos": true})),
        json!({"functions": []}),
    ];
    check("/v1/chat/completions", hello(), variants, expect![[r#"
        400 tools invalid_value: tools is {}, expected an array
        400 tools[0].type invalid_value: tools[0].type is "retrieval", expected "function"
        400 tools[0].function missing_field: tools[0].function is missing, expected an object
        400 tools[0].function.name invalid_value: tools[0].function.name is "a b", expected 1 to 128 letters, digits, or any of _ - . : /
        400 tools[0].function.parameters invalid_value: tools[0].function.parameters is "none", expected an object
        400 tools[0].function.strict invalid_value: tools[0].function.strict is "yes", expected true or false
        400 tools[1] invalid_tool: tool `weather`: declared twice, expected each name once
        400 tool_choice invalid_value: tool_choice is "maybe", expected one of none, auto, required, or an object naming a function
        400 tool_choice invalid_value: tool_choice is 7, expected one of none, auto, required, or an object naming a function
        400 tool_choice.function.name invalid_value: tool_choice.function.name is "other", expected one of the declared tools: weather
        400 tool_choice.type invalid_value: tool_choice.type is "custom", expected one of function, allowed_tools
        400 tool_choice.function missing_field: tool_choice.function is missing, expected an object with a name
        400 tool_choice.allowed_tools missing_field: tool_choice.allowed_tools is missing, expected an object with mode and tools
        400 tool_choice.allowed_tools.tools invalid_value: tool_choice.allowed_tools.tools is [], expected at least one tool
        400 tool_choice.allowed_tools.tools[0].function.name invalid_value: tool_choice.allowed_tools.tools[0].function.name is "other", expected one of the declared tools: weather
        400 tool_choice.allowed_tools.mode invalid_value: tool_choice.allowed_tools.mode is "any", expected one of auto, required
        400 tools missing_field: tools is missing, expected at least one, as tool_choice is required
        400 tools missing_field: tools is missing, expected the tool that tool_choice.function.name names, "weather"
        400 parallel_tool_calls invalid_value: parallel_tool_calls is "no", expected true or false
        400 ignore_eos invalid_value: ignore_eos is true, expected false together with tool_choice
        400 functions unsupported_field: functions is not supported: send tools and tool_choice instead
    "#]]).await;
}

/// Schemas that can't be held, under the field and the place that are at fault.
#[tokio::test]
async fn schemas() {
    let odd = json!({"type": "object", "properties": {"x": {"not": {"type": "string"}}}});
    let tool = |fields: Value| {
        let function = with(&json!({"name": "f", "parameters": odd}), fields);
        json!([weather_tools()[0], {"type": "function", "function": function}])
    };
    let format = json!({"type": "json_schema", "json_schema": {"schema": odd}});
    let variants = vec![
        json!({"tools": tool(json!({"strict": true}))}),
        json!({"tools": tool(json!({})), "tool_choice": "required"}),
        json!({"tools": tool(json!({})), "parallel_tool_calls": false}),
        json!({"response_format": format}),
        json!({"guided_json": odd}),
        json!({"structured_outputs": {"json": {"type": "unicorn"}}}),
        json!({"guided_json": {"$ref": "#/definitions/none"}}),
    ];
    check("/v1/chat/completions", hello(), variants, expect![[r#"
        400 tools[1].function.parameters/properties/x unsupported_schema: tools[1].function.parameters can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
        400 tools[1].function.parameters/properties/x unsupported_schema: tools[1].function.parameters can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
        400 tools[1].function.parameters/properties/x unsupported_schema: tools[1].function.parameters can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
        400 response_format.json_schema.schema/properties/x unsupported_schema: response_format.json_schema.schema can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
        400 guided_json/properties/x unsupported_schema: guided_json can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
        400 structured_outputs.json unsupported_schema: structured_outputs.json can't be held: `type` at the root: "unicorn", expected a type of JSON Schema
        400 guided_json unsupported_schema: guided_json can't be held: `$ref` at the root: `#/definitions/none` is not in this schema, expected a place that is
    "#]]).await;
    let format = json!({"type": "json_schema", "schema": odd});
    let variants = vec![
        json!({"tools": [{"name": "f", "input_schema": odd, "strict": true}]}),
        json!({"output_config": {"format": format}}),
        json!({"output_format": format}),
    ];
    let body = json!({"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]});
    check("/v1/messages", body, variants, expect![[r#"
        400 tools[0].input_schema/properties/x unsupported_schema: tools[0].input_schema can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
        400 output_config.format.schema/properties/x unsupported_schema: output_config.format.schema can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
        400 output_format.schema/properties/x unsupported_schema: output_format.schema can't be held: `not` at /properties/x: can't be enforced; expected a schema without it
    "#]]).await;
    // What the request does not ask to hold is left to the model.
    let server = Setup::says("no</think>Fine.<|user|>").start();
    for fields in [json!({}), json!({"strict": false})] {
        let body = with(&hello(), json!({"tools": tool(fields)}));
        assert_eq!(server.post("/v1/chat/completions", &body).await.status, 200);
    }
    let loose = json!({"tools": tool(json!({"strict": false})), "tool_choice": "required", "max_tokens": 20});
    let answer = server
        .post("/v1/chat/completions", &with(&hello(), loose))
        .await;
    assert_eq!(answer.status, 200, "{:?}", answer.bytes);
}

#[tokio::test]
async fn forms_of_the_answer() {
    let format = |format: Value| json!({"response_format": format});
    let structured = |form: Value| json!({"structured_outputs": form});
    let many: Vec<String> = (0..5001).map(|number| number.to_string()).collect();
    let variants = vec![
        format(json!("json")),
        format(json!({})),
        format(json!({"type": "poem"})),
        format(json!({"type": "regex", "pattern": "a"})),
        format(json!({"type": "grammar", "grammar": "a"})),
        format(json!({"type": "structural_tag"})),
        format(json!({"type": "json_schema"})),
        format(json!({"type": "json_schema", "json_schema": {"name": "x"}})),
        format(json!({"type": "json_schema", "json_schema": {"schema": 7}})),
        format(json!({"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}})),
        structured(json!({})),
        structured(json!({"json": "no schema"})),
        structured(json!({"yaml": {}})),
        structured(json!({"regex": 7})),
        structured(json!({"choice": ["a", 7]})),
        structured(json!({"choice": []})),
        structured(json!({"choice": many})),
        structured(json!({"regex": "a", "json": {}})),
        structured(json!({"structural_tag": "x"})),
        structured(json!({"regex": "a", "whitespace_pattern": " "})),
        structured(json!({"json": {}, "disable_any_whitespace": true})),
        structured(json!({"regex": "("})),
        structured(json!({"regex": "a".repeat(5000)})),
        structured(json!({"grammar": "start: nothing"})),
        structured(json!({"grammar": "start: %json {}"})),
        json!({"guided_json": [1]}),
        json!({"guided_regex": "a", "guided_choice": ["a"]}),
        json!({"guided_regex": "a", "response_format": {"type": "json_object"}}),
        json!({"guided_whitespace_pattern": " "}),
        json!({"grammar": "root ::= \"a\""}),
        json!({"ebnf": "root ::= \"a\""}),
        json!({"json_schema": {}}),
        json!({"guided_regex": "a", "ignore_eos": true}),
        json!({"modalities": ["audio"]}),
        json!({"model": "other"}),
        json!({"model": 7}),
    ];
    check(
        "/v1/chat/completions",
        hello(),
        variants.clone(),
        expect![[r#"
            400 response_format invalid_value: response_format is "json", expected an object
            400 response_format.type missing_field: response_format.type is missing, expected a string
            400 response_format.type invalid_value: response_format.type is "poem", expected one of text, json_object, json_schema
            400 response_format.type unsupported_field: response_format.type is not supported: "regex": send structured_outputs.regex or structured_outputs.grammar
            400 response_format.type unsupported_field: response_format.type is not supported: "grammar": send structured_outputs.regex or structured_outputs.grammar
            400 response_format.type unsupported_field: response_format.type is not supported: "structural_tag": send structured_outputs.regex or structured_outputs.grammar
            400 response_format.json_schema missing_field: response_format.json_schema is missing, expected an object with a schema
            400 response_format.json_schema.schema missing_field: response_format.json_schema.schema is missing, expected a JSON schema
            400 response_format.json_schema.schema invalid_value: response_format.json_schema.schema is 7, expected a JSON schema, an object
            400 response_format.json_schema.strict invalid_value: response_format.json_schema.strict is 1, expected true or false
            400 structured_outputs invalid_value: structured_outputs is {}, expected one of json, regex, choice, grammar, json_object
            400 structured_outputs.json invalid_value: structured_outputs.json is "no schema", expected a JSON schema, an object
            400 structured_outputs.yaml unsupported_field: structured_outputs.yaml is not supported: expected json, regex, choice, grammar or json_object
            400 structured_outputs.regex invalid_value: structured_outputs.regex is 7, expected a string
            400 structured_outputs.choice[1] invalid_value: structured_outputs.choice[1] is 7, expected a string
            400 structured_outputs.choice empty_choice: structured_outputs.choice can't be held: there are no choices, expected at least one
            400 structured_outputs.choice grammar_too_large: structured_outputs.choice can't be held: a number of choices of 5001, expected at most 5000
            400 structured_outputs.regex invalid_value: both structured_outputs.json and structured_outputs.regex are there, expected one of them
            400 structured_outputs.structural_tag unsupported_field: structured_outputs.structural_tag is not supported: send a Lark grammar
            400 structured_outputs.whitespace_pattern unsupported_field: structured_outputs.whitespace_pattern is not supported: send a Lark grammar
            400 structured_outputs.disable_any_whitespace unsupported_field: structured_outputs.disable_any_whitespace is not supported: say it in the schema or in a Lark grammar
            400 structured_outputs.regex unsupported_grammar: structured_outputs.regex can't be held: at 2(4): invalid regex "(" (in regex): regex parse error:
                (
                ^
            error: unclosed group
               1 | start: T
               2 | T: /(/
                      ^
            400 structured_outputs.regex grammar_too_large: structured_outputs.regex can't be held: a regex in bytes of 5000, expected at most 4096
            400 structured_outputs.grammar unsupported_grammar: structured_outputs.grammar can't be held: at 1(8): unknown name: "nothing"
               1 | start: nothing
                          ^
            400 structured_outputs.grammar unsupported_grammar: structured_outputs.grammar can't be held: the grammar uses %json, which this server doesn't have
            400 guided_json invalid_value: guided_json is [1], expected a JSON schema, an object
            400 guided_choice invalid_value: both guided_regex and guided_choice are there, expected one of them
            400 guided_regex invalid_value: both response_format and guided_regex are there, expected one of them
            400 guided_whitespace_pattern unsupported_field: guided_whitespace_pattern is not supported: blanks of JSON can't be chosen
            400 grammar unsupported_field: grammar is not supported: servers disagree about its syntax; send a Lark grammar as structured_outputs.grammar
            400 ebnf unsupported_field: ebnf is not supported: send a Lark grammar as structured_outputs.grammar
            400 json_schema unsupported_field: json_schema is not supported: send response_format of type json_schema
            400 ignore_eos invalid_value: ignore_eos is true, expected false together with guided_regex
            400 modalities unsupported_field: modalities is not supported: this model writes text only
            404 model model_not_found: model is "other", this server has tiny
            400 model invalid_value: model is 7, expected a string
        "#]],
    )
    .await;
    // The fields are the same, and read the same, in plain completions.
    let server = Setup::new().start();
    for fields in variants
        .into_iter()
        .filter(|fields| fields["modalities"].is_null())
    {
        let chat = server
            .post("/v1/chat/completions", &with(&hello(), fields.clone()))
            .await;
        let plain = with(&json!({"prompt": "a"}), fields);
        let plain = server.post("/v1/completions", &plain).await;
        assert_eq!(line(&plain), line(&chat));
    }
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
        json!({"tool_choice": {"type": "any"}}),
        json!({"tools": [tool], "tool_choice": {"type": "tool"}}),
        json!({"tools": [tool], "tool_choice": {"type": "tool", "name": "g"}}),
        json!({"tools": [tool], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}),
        json!({"output_config": {"effort": "wild"}}),
        json!({"output_config": {"format": {"type": "text"}}}),
        json!({"output_config": {"format": {"type": "json_schema"}}}),
        json!({"output_format": {"type": "json_schema", "schema": {}}, "guided_regex": "a"}),
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
        400 tools missing_field: tools is missing, expected at least one, as tool_choice.type is "any"
        400 tool_choice.name missing_field: tool_choice.name is missing, expected the name of a tool
        400 tool_choice.name invalid_value: tool_choice.name is "g", expected one of the declared tools: f
        400 tool_choice.disable_parallel_tool_use invalid_value: tool_choice.disable_parallel_tool_use is 1, expected true or false
        400 output_config.effort invalid_value: output_config.effort is "wild", expected one of none, minimal, low, medium, high, xhigh, max
        400 output_config.format.type invalid_value: output_config.format.type is "text", expected "json_schema"
        400 output_config.format.schema missing_field: output_config.format.schema is missing, expected a JSON schema
        400 output_format.schema invalid_value: both guided_regex and output_format.schema are there, expected one of them
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
