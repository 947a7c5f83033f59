//! `POST /v1/chat/completions`: whole and streamed say the same, with reasoning, calls, choices,
//! seeds, stop strings and log-probabilities.

use crate::harness::*;
use lockstep_server::automaton::check_chat_stream;
use lockstep_server::{DeliveryPolicy, SamplingPolicy, SamplingRanges};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// Asks for a whole and a streamed answer, checks that they agree, and returns the whole one.
pub async fn both(server: &TestServer, body: &Value, n: usize) -> Value {
    // The seed is fixed, so that both are the same draw.
    let body = with(body, json!({"seed": 7}));
    let whole = server.post(CHAT, &body).await;
    let stream = with(
        &body,
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    let streamed = server.post(CHAT, &stream).await;
    assert_eq!(whole.status, 200, "{:?}", whole.bytes);
    assert_eq!(streamed.status, 200, "{:?}", streamed.bytes);
    assert_eq!(check_chat_stream(&streamed.bytes, n), Ok(()));
    let whole = whole.json();
    let (left, right) = (as_folded(&whole), fold_chat(&streamed.bytes));
    let (left, right) = (uncached(left), uncached(right));
    assert_eq!(without_ids(left), without_ids(right));
    whole
}

#[tokio::test]
async fn reasoning_and_content_are_apart_and_trimmed() {
    let server = Setup::says("\nHmm, 2 + 2.\n</think>\n\nFour,\n I say. \n<|user|>").start();
    let answer = both(&server, &hello(), 1).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Hmm, 2 + 2.");
    assert_eq!(message["reasoning"], "Hmm, 2 + 2.");
    assert_eq!(message["content"], "Four,\n I say.");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let usage = &answer["usage"];
    let total = usage["prompt_tokens"]
        .as_u64()
        .zip(usage["completion_tokens"].as_u64());
    assert_eq!(
        usage["total_tokens"].as_u64(),
        total.map(|(prompt, output)| prompt + output)
    );
    assert!(usage["completion_tokens_details"]["reasoning_tokens"].as_u64() > Some(3));
}

#[tokio::test]
async fn a_tool_call_arrives_whole() {
    for delivery in [
        DeliveryPolicy::Auto,
        DeliveryPolicy::Whole,
        DeliveryPolicy::Eager,
    ] {
        let mut setup = Setup::says(WEATHER_CALL);
        setup.config.delivery = delivery;
        let server = setup.start();
        let answer = both(
            &server,
            &with(&hello(), json!({"tools": weather_tools()})),
            1,
        )
        .await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(choice["message"]["content"], "On it.");
        let call = &choice["message"]["tool_calls"][0];
        assert!(
            call["id"]
                .as_str()
                .is_some_and(|id| id.starts_with("call_"))
        );
        assert_eq!(call["function"]["name"], "weather");
        let arguments = call["function"]["arguments"].as_str().expect("text");
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        assert_eq!(arguments, json!({"city": "Paris", "days": 3}));
    }
}

#[tokio::test]
async fn a_tool_result_goes_back_into_the_prompt() {
    let server = Setup::says("ok</think>Sunny.<|user|>").start();
    let turns = json!({"tools": weather_tools(), "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Paris?"}]},
        {"role": "assistant", "content": null, "reasoning_content": "look", "tool_calls": [{
            "id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"},
        }]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]});
    let answer = both(&server, &with(&hello(), turns.clone()), 1).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Sunny.");
    // What the model read, by way of /tokenize and /detokenize.
    let read = server.post("/tokenize", &turns).await.json();
    assert_eq!(read["count"], answer["usage"]["prompt_tokens"]);
    let text = server
        .post("/detokenize", &json!({"tokens": read["tokens"]}))
        .await
        .json();
    let text = text["prompt"].as_str().expect("text").to_string();
    let call = "<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>";
    assert!(text.contains(call), "{text}");
    assert!(
        text.ends_with("<tool_response>sunny</tool_response><|assistant|><think>"),
        "{text}"
    );
}

#[tokio::test]
async fn the_limit_inside_reasoning_leaves_content_null() {
    let server = Setup::says("a b c d e f g h i j k l m n").start();
    let answer = both(&server, &with(&hello(), json!({"max_tokens": 6})), 1).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(answer["usage"]["completion_tokens"], 6);
    assert_eq!(
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
        6
    );
}

#[tokio::test]
async fn the_limit_inside_a_call_leaves_it_out_and_says_so() {
    let server = Setup::says(WEATHER_CALL).start();
    let limit = tokens(WEATHER_CALL).len() - 3;
    let fields = json!({"tools": weather_tools(), "max_completion_tokens": limit});
    let answer = both(&server, &with(&hello(), fields), 1).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"], "On it.");
    assert_eq!(choice["message"].get("tool_calls"), None);
    assert_eq!(answer["warnings"][0]["code"], "dropped_call");
}

#[tokio::test]
async fn a_reasoning_budget_lets_the_answer_begin() {
    let server = Setup::says("a b c d e f g h i j k l m n").start();
    let fields = json!({"max_tokens": 9, "reasoning": {"max_tokens": 4}, "ignore_eos": true});
    let answer = both(&server, &with(&hello(), fields), 1).await;
    assert_eq!(
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
        5
    );
    assert_ne!(answer["choices"][0]["message"]["content"], Value::Null);
}

#[tokio::test]
async fn a_stop_string_cuts_content_only() {
    let server = Setup::says("END is near</think>one END two<|user|>").start();
    let answer = both(
        &server,
        &with(&hello(), json!({"stop": ["never", "END"]})),
        1,
    )
    .await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "one");
    assert_eq!(choice["message"]["reasoning_content"], "END is near");
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["stop_reason"], "END");
}

#[tokio::test]
async fn a_broken_call_is_a_named_error_in_both() {
    let broken = "</think>Well.<tool_call>weather<arg_key>days</arg_key>\
        <arg_value>many</arg_value></tool_call><|observation|>";
    let server = Setup::says(broken).start();
    let body = with(&hello(), json!({"tools": weather_tools()}));
    let whole = server.post(CHAT, &body).await;
    assert_eq!(whole.status, 500);
    let error = &whole.json()["error"];
    assert_eq!(error["code"], "bad_value");
    assert_eq!(error["partial"]["content"], "Well.");
    let markup = &broken[broken.find("<tool_call>").expect("a call")..];
    let markup = markup.strip_suffix("<|observation|>").expect("an end");
    assert_eq!(error["detail"]["markup"], markup, "nothing is lost");
    assert_eq!(
        error["detail"]["offset"],
        broken.find("many").expect("a value")
    );
    let streamed = server
        .post(CHAT, &with(&body, json!({"stream": true})))
        .await;
    assert_eq!(streamed.status, 200);
    assert_eq!(check_chat_stream(&streamed.bytes, 1), Ok(()));
    let folded = fold_chat(&streamed.bytes);
    assert_eq!(folded["error"]["code"], "bad_value");
    assert_eq!(folded["error"]["message"], error["message"]);
    assert_eq!(folded["error"]["detail"], error["detail"]);
    assert_eq!(folded["choices"][0]["finish_reason"], "error");
    assert_eq!(folded["choices"][0]["message"]["content"], "Well.");
}

#[tokio::test]
async fn choices_have_seeds_that_repeat_them() {
    let server = Setup::new().start();
    let body = with(
        &hello(),
        json!({"n": 3, "max_tokens": 12, "temperature": 1.5, "ignore_eos": true}),
    );
    let answer = both(&server, &body, 3).await;
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(answer["seed"], choices[0]["seed"]);
    assert_ne!(choices[0]["message"], choices[1]["message"]);
    assert_eq!(answer["usage"]["completion_tokens"], 36);
    for choice in choices {
        let alone = with(&body, json!({"n": 1, "seed": choice["seed"]}));
        let alone = server.post(CHAT, &alone).await.json();
        assert_eq!(alone["choices"][0]["message"], choice["message"]);
    }
}

#[tokio::test]
async fn a_drawn_seed_is_returned_and_repeats_the_answer() {
    let server = Setup::new().start();
    let body = with(
        &hello(),
        json!({"max_tokens": 12, "temperature": 1, "ignore_eos": true}),
    );
    let first = server.post(CHAT, &body).await.json();
    let other = server.post(CHAT, &body).await.json();
    assert_ne!(first["seed"], other["seed"]);
    let again = with(&body, json!({"seed": first["seed"], "stream": true}));
    let again = fold_chat(&server.post(CHAT, &again).await.bytes);
    assert_eq!(again["seed"], first["seed"]);
    assert_eq!(
        again["choices"][0]["message"]["reasoning"],
        first["choices"][0]["message"]["reasoning"]
    );
}

#[tokio::test]
async fn logprobs_come_with_every_token() {
    let server = Setup::says("so</think>Four it is.<|user|>").start();
    let fields = json!({"logprobs": true, "top_logprobs": 2});
    let answer = both(&server, &with(&hello(), fields), 1).await;
    let entries = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .expect("entries");
    let text: String = entries
        .iter()
        .map(|entry| entry["token"].as_str().expect("text"))
        .collect();
    assert_eq!(text, "so</think>Four it is.");
    for entry in entries {
        assert_eq!(entry["top_logprobs"].as_array().map(Vec::len), Some(2));
        assert!(
            entry["logprob"]
                .as_f64()
                .is_some_and(|logprob| logprob <= 0.0)
        );
    }
}

#[tokio::test]
async fn a_clamped_parameter_is_reported_or_refused() {
    for policy in [SamplingPolicy::Clamp, SamplingPolicy::Refuse] {
        let mut setup = Setup::says("</think>Yes.<|user|>");
        setup.config.sampling_policy = policy;
        setup.config.ranges = Some(SamplingRanges {
            temperature: Some((0.5, 1.0)),
            ..SamplingRanges::default()
        });
        let server = setup.start();
        let body = with(&hello(), json!({"temperature": 0}));
        if policy == SamplingPolicy::Clamp {
            let answer = both(&server, &body, 1).await;
            let warning = &answer["warnings"][0];
            assert_eq!(warning["field"], "temperature");
            assert_eq!(
                (&warning["asked"], &warning["used"]),
                (&json!(0.0), &json!(0.5))
            );
        } else {
            let answer = server.post(CHAT, &body).await;
            assert_eq!(answer.status, 400);
            assert_eq!(answer.json()["error"]["param"], "temperature");
        }
    }
}

#[tokio::test]
async fn thinking_off_starts_in_content() {
    let server = Setup::says("Four.<|user|>").start();
    for fields in [
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
        json!({"reasoning_effort": "none"}),
        json!({"reasoning": {"enabled": false}}),
    ] {
        let answer = both(&server, &with(&hello(), fields), 1).await;
        let message = &answer["choices"][0]["message"];
        assert_eq!(message["content"], "Four.");
        assert_eq!(message.get("reasoning"), None);
    }
}

#[tokio::test]
async fn a_failed_step_ends_its_requests_and_no_others() {
    let mut setup = Setup::says("</think>Yes.<|user|>");
    setup.backend.failing_step = Some(lockstep_step::StepId(1));
    let server = setup.start();
    let failed = server.post(CHAT, &hello()).await;
    assert_eq!(failed.status, 500);
    assert_eq!(failed.json()["error"]["code"], "step_failed");
    let fine = server.post(CHAT, &hello()).await.json();
    assert_eq!(fine["choices"][0]["message"]["content"], "Yes.");
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn a_lost_device_stops_the_engine_and_health_says_so() {
    let mut setup = Setup::says("</think>Yes.<|user|>");
    setup.backend.lost_step = Some(lockstep_step::StepId(1));
    let server = setup.start();
    let failed = server.post(CHAT, &hello()).await;
    assert_eq!(failed.status, 500);
    assert_eq!(failed.json()["error"]["code"], "engine_stopped");
    let refused = server.post(CHAT, &hello()).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["error"]["code"], "engine_stopped");
    let health = server.get("/health").await;
    assert_eq!(health.status, 503);
    let reason = health.json()["reason"].to_string();
    assert!(reason.contains("the device is lost"), "{reason}");
}
