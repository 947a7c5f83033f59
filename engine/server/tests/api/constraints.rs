//! What a request holds its answer to: calls, schemas, regexes, choices and grammars, on every route,
//! whole and streamed. The model here draws tokens by hashes, so that nothing but the grammar makes an
//! answer what it is.

use crate::harness::*;
use crate::{chat, completions, messages};
use lockstep_server::{DeliveryPolicy, ToolGrammar};
use lockstep_tags::TagFormat;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// A tool whose calls are short, whatever is drawn.
fn alarm_tool(fields: Value) -> Value {
    let function = json!({
        "name": "set_alarm",
        "parameters": alarm_schema(),
    });
    json!({"type": "function", "function": with(&function, fields)})
}

fn stop_tool() -> Value {
    json!({"type": "function", "function": {"name": "stop_alarm"}})
}

fn alarm_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            "day": {"type": "string", "enum": ["monday", "sunday"]},
            "loud": {"type": "boolean"},
        },
        "required": ["hour", "day", "loud"],
        "additionalProperties": false,
    })
}

/// A conversation whose answer is drawn by chance. The prompt opens no reasoning; where chance does, the
/// budget closes it.
fn drawn(fields: Value) -> Value {
    let body = with(
        &hello(),
        json!({
            "temperature": 1.5, "max_tokens": 400, "reasoning_effort": "none",
            "reasoning": {"max_tokens": 8},
        }),
    );
    with(&body, fields)
}

/// Whether arguments are what the schema says.
fn is_alarm(arguments: &Value) -> bool {
    let hour = arguments["hour"].as_i64();
    let day = arguments["day"].as_str().unwrap_or_default();
    let num_fields = arguments.as_object().map(|map| map.len());
    hour.is_some_and(|hour| (0..24).contains(&hour))
        && ["monday", "sunday"].contains(&day)
        && arguments["loud"].is_boolean()
        && num_fields == Some(3)
}

fn arguments(call: &Value) -> Value {
    let text = call["function"]["arguments"].as_str().expect("text");
    serde_json::from_str(text).expect("JSON")
}

#[tokio::test]
async fn required_named_and_strict_calls_are_well_formed() {
    let tools = json!([stop_tool(), alarm_tool(json!({}))]);
    let named = json!({"type": "function", "function": {"name": "set_alarm"}});
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [named],
    }});
    let variants = [
        json!({"tools": tools, "tool_choice": "required"}),
        json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false}),
        json!({"tools": tools, "tool_choice": named}),
        json!({"tools": tools, "tool_choice": allowed}),
        json!({
            "tools": [alarm_tool(json!({"strict": true}))], "tool_choice": "required",
            "parallel_tool_calls": false,
        }),
    ];
    for (idx, fields) in variants.into_iter().enumerate() {
        let server = Setup::new().start();
        let mut num_alarms = 0;
        for prompt in 0..8 {
            let message = json!([{"role": "user", "content": format!("{prompt}")}]);
            let body = with(&drawn(fields.clone()), json!({"messages": message}));
            let answer = chat::both(&server, &body, 1).await;
            let choice = &answer["choices"][0];
            let calls = choice["message"]["tool_calls"].as_array();
            let calls = calls.unwrap_or_else(|| panic!("variant {idx}: {choice}"));
            if body["parallel_tool_calls"] == false {
                assert_eq!(calls.len(), 1, "variant {idx}: {choice}");
                assert_eq!(choice["finish_reason"], "tool_calls", "variant {idx}");
            }
            for call in calls {
                let is_alarm_call = call["function"]["name"] == "set_alarm";
                num_alarms += usize::from(is_alarm_call);
                let fine = match is_alarm_call {
                    true => is_alarm(&arguments(call)),
                    false => idx < 2 && arguments(call) == json!({}),
                };
                assert!(fine, "variant {idx}: {call}");
            }
        }
        assert!(num_alarms > 0, "variant {idx} never called set_alarm");
        assert!(server.metric("lockstep_constrained_requests_total") >= 16.0);
        assert_eq!(server.metric("lockstep_request_errors_total"), 0.0);
    }
}

#[tokio::test]
async fn a_strict_tool_holds_what_the_model_wants_to_write() {
    // The model would write a word where a number must be.
    let says =
        "<tool_call>set_alarm<arg_key>hour</arg_key><arg_value>seven</arg_value></tool_call>";
    let loose = json!({"tools": [alarm_tool(json!({}))], "reasoning_effort": "none"});
    let answer = Setup::says(says)
        .start()
        .post(CHAT, &with(&hello(), loose))
        .await;
    assert_eq!(answer.status, 500, "{:?}", answer.bytes);
    let strict = [
        (
            json!({"tools": [alarm_tool(json!({"strict": true}))]}),
            ToolGrammar::Asked,
        ),
        (
            json!({"tools": [alarm_tool(json!({}))]}),
            ToolGrammar::Always,
        ),
        (
            json!({"tools": [alarm_tool(json!({}))], "parallel_tool_calls": false}),
            ToolGrammar::Asked,
        ),
    ];
    for (fields, tool_grammar) in strict {
        let mut setup = Setup::says(says);
        setup.config.tool_grammar = tool_grammar;
        let server = setup.start();
        let body = with(&drawn(fields), json!({"temperature": 0}));
        let answer = chat::both(&server, &body, 1).await;
        let call = &answer["choices"][0]["message"]["tool_calls"][0];
        assert!(is_alarm(&arguments(call)), "{answer}");
    }
}

#[tokio::test]
async fn calls_can_be_forbidden() {
    let server = Setup::says(WEATHER_CALL).start();
    let fields = json!({"tools": weather_tools(), "tool_choice": "none", "max_tokens": 60});
    let answer = chat::both(&server, &with(&hello(), fields.clone()), 1).await;
    let content = answer["choices"][0]["message"]["content"].to_string();
    assert!(content.starts_with("\"On it."), "{content}");
    assert!(!content.contains("<tool_call>"), "{content}");
    assert_eq!(answer["choices"][0]["message"].get("tool_calls"), None);
    // An answer that does not end can't be held; the tag is then text.
    let endless = with(&fields, json!({"ignore_eos": true}));
    let answer = chat::both(&server, &with(&hello(), endless), 1).await;
    let content = answer["choices"][0]["message"]["content"].to_string();
    assert!(
        content.starts_with("\"On it.<tool_call>weather"),
        "{content}"
    );
}

#[tokio::test]
async fn strict_is_not_said_to_the_model() {
    let server = Setup::new().start();
    let mut counts = Vec::new();
    for fields in [json!({}), json!({"strict": true}), json!({"strict": false})] {
        let body = json!({"tools": [alarm_tool(fields)], "messages": hello()["messages"]});
        counts.push(server.post("/tokenize", &body).await.json()["count"].clone());
    }
    assert!(counts[0].is_number() && counts[0] == counts[1] && counts[1] == counts[2]);
}

/// What an answer may be, and whether a text is that.
type Form = (Value, fn(&str) -> bool);

fn forms() -> Vec<Form> {
    fn alarm(text: &str) -> bool {
        serde_json::from_str(text).is_ok_and(|value| is_alarm(&value))
    }
    fn digits(text: &str) -> bool {
        text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit())
    }
    fn fruit(text: &str) -> bool {
        ["apple", "pear"].contains(&text)
    }
    fn greeting(text: &str) -> bool {
        ["hello world", "hello moon"].contains(&text)
    }
    let named = json!({"name": "alarm", "schema": alarm_schema(), "strict": true});
    let loose = json!({"name": "alarm", "schema": alarm_schema()});
    let lark = "start: \"hello \" (\"world\" | \"moon\")";
    let schema_text = alarm_schema().to_string();
    vec![
        (
            json!({"response_format": {"type": "json_schema", "json_schema": named}}),
            alarm,
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": loose}}),
            alarm,
        ),
        (
            json!({"response_format": {"type": "json_object", "schema": alarm_schema()}}),
            alarm,
        ),
        (
            json!({"structured_outputs": {"json": alarm_schema()}}),
            alarm,
        ),
        (json!({"structured_outputs": {"json": schema_text}}), alarm),
        (json!({"guided_json": alarm_schema()}), alarm),
        (json!({"structured_outputs": {"regex": "[0-9]{3}"}}), digits),
        (json!({"guided_regex": "[0-9]{3}"}), digits),
        (json!({"regex": "[0-9]{3}"}), digits),
        (
            json!({"structured_outputs": {"choice": ["apple", "pear"]}}),
            fruit,
        ),
        (json!({"guided_choice": ["apple", "pear"]}), fruit),
        (json!({"structured_outputs": {"grammar": lark}}), greeting),
        (json!({"guided_grammar": lark}), greeting),
    ]
}

/// Checks the texts of several answers; a few may have reached the limit.
fn check_texts(about: &Value, texts: Vec<(String, bool)>, is_fine: fn(&str) -> bool) {
    let ended: Vec<&String> = texts
        .iter()
        .filter(|(_, ended)| *ended)
        .map(|(text, _)| text)
        .collect();
    assert!(2 * ended.len() > texts.len(), "{about}: {texts:?}");
    for text in ended {
        assert!(is_fine(text), "{about}: {text:?}");
    }
}

#[tokio::test]
async fn chat_answers_have_the_form_that_was_asked_for() {
    for (fields, is_fine) in forms() {
        let server = Setup::new().start();
        let body = with(&drawn(fields.clone()), json!({"n": 4}));
        let answer = chat::both(&server, &body, 4).await;
        let choices = answer["choices"].as_array().expect("choices");
        let texts = choices.iter().map(|choice| {
            let text = choice["message"]["content"].as_str().unwrap_or_default();
            (text.to_string(), choice["finish_reason"] == "stop")
        });
        check_texts(&fields, texts.collect(), is_fine);
        assert_eq!(server.metric("lockstep_grammar_cache_misses_total"), 1.0);
        assert_eq!(server.metric("lockstep_grammar_cache_entries"), 1.0);
        assert_eq!(server.metric("lockstep_grammar_compile_seconds_count"), 2.0);
    }
}

#[tokio::test]
async fn completions_have_the_form_that_was_asked_for() {
    for (fields, is_fine) in forms() {
        let server = Setup::new().start();
        let body = json!({"prompt": ["one", "two"], "n": 2, "temperature": 1.5, "max_tokens": 400});
        let answer = completions::both(&server, &with(&body, fields.clone()), 4).await;
        let choices = answer["choices"].as_array().expect("choices");
        let texts = choices.iter().map(|choice| {
            let text = choice["text"].as_str().unwrap_or_default();
            (text.to_string(), choice["finish_reason"] == "stop")
        });
        check_texts(&fields, texts.collect(), is_fine);
    }
}

#[tokio::test]
async fn reasoning_is_free_until_it_ends() {
    // The budget closes what a model that draws by chance would never close.
    let fields = json!({
        "guided_choice": ["apple", "pear"], "reasoning_effort": "high",
        "reasoning": {"max_tokens": 12},
    });
    let server = Setup::new().start();
    let answer = chat::both(&server, &drawn(fields), 1).await;
    let message = &answer["choices"][0]["message"];
    assert!(
        ["apple", "pear"].contains(&message["content"].as_str().unwrap_or("")),
        "{answer}"
    );
    assert!(
        message["reasoning_content"]
            .as_str()
            .is_some_and(|text| text.len() > 5)
    );
    // One that closes it by itself.
    let server = Setup::says("Apples or pears?</think>").start();
    let body = with(&hello(), json!({"guided_choice": ["apple", "pear"]}));
    let answer = chat::both(&server, &body, 1).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Apples or pears?");
    assert!(
        ["apple", "pear"].contains(&message["content"].as_str().unwrap_or("")),
        "{answer}"
    );
}

#[tokio::test]
async fn a_form_that_is_cut_off_says_so() {
    let server = Setup::new().start();
    let fields = json!({"guided_regex": "[0-9]{40}", "max_tokens": 7});
    let answer = chat::both(&server, &drawn(fields), 1).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 7);
}

#[tokio::test]
async fn messages_hold_calls_and_forms() {
    let tool = |fields: Value| {
        let tool = json!({"name": "set_alarm", "input_schema": alarm_schema()});
        json!([with(&tool, fields)])
    };
    let body = |fields: Value| {
        let body = with(
            &hello(),
            json!({"max_tokens": 400, "temperature": 1.5, "thinking": {"type": "disabled"}}),
        );
        with(&body, fields)
    };
    let server = Setup::new().start();
    for fields in [
        json!({"tools": tool(json!({})), "tool_choice": {"type": "any"}}),
        json!({"tools": tool(json!({"strict": true})), "tool_choice": {"type": "any"}}),
        json!({
            "tools": tool(json!({})),
            "tool_choice": {"type": "tool", "name": "set_alarm", "disable_parallel_tool_use": true},
        }),
    ] {
        let answer = messages::both(&server, &body(fields.clone())).await;
        let blocks = answer["content"].as_array().expect("content");
        assert!(!blocks.is_empty(), "{answer}");
        for block in blocks {
            assert_eq!(block["type"], "tool_use", "{answer}");
            assert!(is_alarm(&block["input"]), "{answer}");
        }
        if !fields["tool_choice"]["disable_parallel_tool_use"].is_null() {
            assert_eq!(blocks.len(), 1);
            assert_eq!(answer["stop_reason"], "tool_use");
        }
    }
    let format = json!({"type": "json_schema", "schema": alarm_schema()});
    for fields in [
        json!({"output_config": {"format": format, "effort": "none"}}),
        json!({"output_format": format}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"schema": alarm_schema()}}}),
    ] {
        let answer = messages::both(&server, &body(fields)).await;
        let text = answer["content"][0]["text"].as_str().expect("text");
        assert_eq!(answer["stop_reason"], "end_turn", "{answer}");
        let value = serde_json::from_str(text).expect("JSON");
        assert!(is_alarm(&value), "{text}");
    }
}

/// A model whose calls no grammar knows.
#[tokio::test]
async fn calls_that_cannot_be_held_are_refused_and_all_else_is_served() {
    let server = Setup::new().start_as(|contract| contract.tag_format = TagFormat::KimiK2);
    let tools = json!([alarm_tool(json!({}))]);
    let strict = json!([alarm_tool(json!({"strict": true}))]);
    for (fields, param) in [
        (
            json!({"tools": tools, "tool_choice": "required"}),
            "tool_choice",
        ),
        (
            json!({"tools": tools, "parallel_tool_calls": false}),
            "parallel_tool_calls",
        ),
        (json!({"tools": strict}), "tools[0].function.strict"),
    ] {
        let answer = server.post(CHAT, &drawn(fields.clone())).await;
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["code"]),
            (400, &json!("unsupported_model")),
            "{error}"
        );
        assert_eq!(error["param"], param);
    }
    let choice = json!({"guided_choice": ["apple"]});
    for fields in [
        json!({"tools": tools, "tool_choice": "none", "max_tokens": 5}),
        with(&choice, json!({"tools": tools, "tool_choice": "none"})),
        choice,
    ] {
        let answer = server.post(CHAT, &drawn(fields.clone())).await;
        assert_eq!(answer.status, 200, "{:?}", answer.bytes);
        if !fields["guided_choice"].is_null() {
            assert_eq!(answer.json()["choices"][0]["message"]["content"], "apple");
        }
    }
}

/// A model whose vocabulary no grammar can be made for: here because it promises to have none.
#[tokio::test]
async fn without_a_vocabulary_only_what_needs_it_is_refused() {
    let server = Setup::new().start_as(|contract| contract.vocab_size = 0);
    let answer = server
        .post(CHAT, &drawn(json!({"guided_regex": "a"})))
        .await;
    let error = &answer.json()["error"];
    assert_eq!(
        (answer.status, &error["param"]),
        (400, &json!("guided_regex")),
        "{error}"
    );
    let message = error["message"].as_str().expect("text");
    assert!(
        message.contains("vocabulary can't be prepared"),
        "{message}"
    );
    let answer = server.post(CHAT, &drawn(json!({"max_tokens": 5}))).await;
    assert_eq!(answer.status, 200, "{:?}", answer.bytes);
    assert_eq!(server.metric("lockstep_constrained_requests_total"), 0.0);
}

/// The bytes that a client gets for a request, ids aside.
async fn outcome(server: &TestServer, body: &Value) -> Value {
    let answer = server.post(CHAT, body).await;
    assert_eq!(answer.status, 200, "{:?}", answer.bytes);
    without_ids(answer.json()["choices"].clone())
}

/// The law, for answers that are held to a form.
#[tokio::test]
async fn company_and_drafts_change_nothing() {
    let tools = json!([stop_tool(), alarm_tool(json!({"strict": true}))]);
    let mut bodies: Vec<Value> = forms()
        .into_iter()
        .map(|(fields, _)| drawn(fields))
        .collect();
    bodies.push(drawn(json!({"tools": tools, "tool_choice": "required"})));
    bodies.push(drawn(json!({"tools": tools, "max_tokens": 100})));
    bodies.push(drawn(
        json!({"tools": tools, "tool_choice": "none", "max_tokens": 100}),
    ));
    bodies.push(drawn(json!({"max_tokens": 100})));
    for (seed, body) in bodies.iter_mut().enumerate() {
        *body = with(body, json!({"seed": seed}));
    }
    let mut all = Vec::new();
    for speculation in [
        "off",
        "forced:1",
        "forced:8",
        "suffix:15,ngram",
        "ngram:7,forced",
    ] {
        let mut setup = Setup::new();
        setup.engine.speculation = speculation.parse().expect("drafters");
        let server = setup.start();
        let mut alone = Vec::new();
        for body in &bodies {
            alone.push(outcome(&server, body).await);
        }
        let together = bodies.iter().map(|body| outcome(&server, body));
        assert_eq!(futures_util::future::join_all(together).await, alone);
        all.push(alone);
    }
    assert!(all.iter().all(|answers| *answers == all[0]));
    // A request may say who drafts for it.
    let server = Setup::new().start();
    for (body, expected) in bodies.iter().zip(&all[0]) {
        let body = with(body, json!({"speculate": "off"}));
        assert_eq!(outcome(&server, &body).await, *expected);
    }
}

#[tokio::test]
async fn calls_under_a_grammar_are_delivered_as_they_are_written() {
    let tools = json!([alarm_tool(json!({"strict": true}))]);
    let body = drawn(json!({
        "tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "stream": true,
        "seed": 7,
    }));
    let mut counts = Vec::new();
    for delivery in [
        DeliveryPolicy::Auto,
        DeliveryPolicy::Eager,
        DeliveryPolicy::Whole,
    ] {
        let mut setup = Setup::new();
        setup.config.delivery = delivery;
        let bytes = setup.start().post(CHAT, &body).await.bytes;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        counts.push(text.matches("\"tool_calls\":[").count());
    }
    assert_eq!(counts[0], counts[1]);
    assert!(counts[0] > counts[2], "{counts:?}");
}
