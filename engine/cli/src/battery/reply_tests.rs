//! Responses of both APIs, whole and streamed, good and broken, and what is read from them.

use super::*;
use InvalidKind::{BrokenStream, ErrorAnswer, HttpStatus, OtherBody, OtherShape, Transport};
use Route::{Anthropic, OpenAi};

fn raw(status: u16, body: &str) -> Raw {
    Raw {
        status: Some(status),
        body: body.as_bytes().to_vec(),
        broken: None,
    }
}

fn events(data: &[&str]) -> String {
    data.iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect()
}

fn call(id: &str, name: &str, arguments: &str) -> Call {
    Call {
        id: Some(id.to_owned()),
        name: Some(name.to_owned()),
        arguments: Some(arguments.to_owned()),
    }
}

#[test]
fn the_same_answer_in_four_ways() {
    let openai = r#"{"choices":[{"message":{"role":"assistant","content":"Hi.",
        "reasoning_content":"Hm.","reasoning":"Hm.","tool_calls":[{"id":"a","type":"function",
        "function":{"name":"set","arguments":"{\"t\":1}"}}]},"finish_reason":"tool_calls"}]}"#;
    let openai_stream = events(&[
        r#"{"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"H","reasoning":"H"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"m."}}]}"#,
        r#"{"choices":[{"delta":{"content":"Hi."}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"set",
           "arguments":""}}]}}]}"#
            .replace('\n', " ")
            .as_str(),
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"t\""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":1}}"#,
        "[DONE]",
    ]);
    let anthropic = r#"{"type":"message","stop_reason":"tool_use","content":[
        {"type":"thinking","thinking":"Hm.","signature":"x"},{"type":"text","text":"Hi."},
        {"type":"tool_use","id":"a","name":"set","input":{"t":1}}]}"#;
    let anthropic_stream = events(&[
        r#"{"type":"message_start","message":{"content":[]}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi."}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"a","name":"set","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"t\":1"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"}"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let expected = Reply {
        content: "Hi.".to_owned(),
        reasoning: "Hm.".to_owned(),
        calls: vec![call("a", "set", "{\"t\":1}")],
        finish: Finish::Calls,
        refused: None,
    };
    for (route, stream, body) in [
        (OpenAi, false, openai),
        (OpenAi, true, &openai_stream),
        (Anthropic, false, anthropic),
        (Anthropic, true, &anthropic_stream),
    ] {
        let found = read(route, stream, &raw(200, body));
        assert_eq!(found.as_ref(), Ok(&expected), "{route:?} {stream}");
        // Cut anywhere, it is no answer.
        for end in 0..body.len().saturating_sub(1) {
            let cut = read(route, stream, &raw(200, &body[..end]));
            let kind = cut.map_err(|invalid| invalid.kind);
            let is_cut = match stream {
                true => kind == Err(BrokenStream),
                false => kind == Err(OtherBody),
            };
            assert!(is_cut, "{route:?} {stream} {end}: {kind:?}");
        }
    }
}

#[test]
fn calls_without_their_parts() {
    let body = r#"{"choices":[{"finish_reason":"tool_calls","message":{"content":null,
        "tool_calls":[{"function":{"arguments":{"t":1}}}]}}]}"#;
    let reply = read(OpenAi, false, &raw(200, body)).expect("an answer");
    assert_eq!(reply.calls, [Call::default()]);
    let no_index = events(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"x"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"1"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"y"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let reply = read(OpenAi, true, &raw(200, &no_index)).expect("an answer");
    let second = Call {
        arguments: None,
        ..call("b", "y", "")
    };
    assert_eq!(reply.calls, [call("a", "x", "1"), second]);
    // No delta at all: the input is that of the block's beginning.
    let no_delta = events(&[
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"x","input":{}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let reply = read(Anthropic, true, &raw(200, &no_delta)).expect("an answer");
    assert_eq!(reply.calls, [call("a", "x", "{}")]);
}

#[test]
fn what_is_no_model_output() {
    let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let failed = r#"{"error":{"code":"step_failed","message":"x"}}"#;
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#;
    let broken = |body: &str| Raw {
        broken: Some("reset".to_owned()),
        ..raw(200, body)
    };
    let nothing = Raw {
        status: None,
        ..broken("")
    };
    let page = "<html>Bad gateway</html>";
    let rows: &[(Route, bool, Raw, InvalidKind)] = &[
        (OpenAi, false, nothing.clone(), Transport),
        (Anthropic, true, nothing, Transport),
        (OpenAi, false, broken("{\"choices\""), Transport),
        (OpenAi, false, raw(502, page), HttpStatus),
        (OpenAi, true, raw(502, page), HttpStatus),
        (
            OpenAi,
            false,
            raw(404, "{\"detail\":\"Not Found\"}"),
            HttpStatus,
        ),
        (
            OpenAi,
            false,
            raw(429, r#"{"error":{"message":"wait"}}"#),
            ErrorAnswer,
        ),
        (Anthropic, true, raw(529, overloaded), ErrorAnswer),
        (OpenAi, false, raw(200, failed), ErrorAnswer),
        (OpenAi, false, raw(200, page), OtherBody),
        (OpenAi, true, raw(200, page), OtherBody),
        (OpenAi, true, raw(200, "{\"choices\":[]}"), OtherBody),
        (OpenAi, false, raw(200, ""), OtherBody),
        (OpenAi, false, raw(200, "{\"choices\":[]}"), OtherShape),
        (OpenAi, false, raw(200, "[]"), OtherShape),
        (
            OpenAi,
            false,
            raw(200, r#"{"choices":[{"text":"a"}]}"#),
            OtherShape,
        ),
        (
            OpenAi,
            false,
            raw(200, r#"{"choices":[{"message":{"content":"a"}}]}"#),
            OtherShape,
        ),
        (
            OpenAi,
            false,
            raw(
                200,
                r#"{"choices":[{"message":{"content":5},"finish_reason":"stop"}]}"#,
            ),
            OtherShape,
        ),
        (
            Anthropic,
            false,
            raw(200, r#"{"content":"a","stop_reason":"end_turn"}"#),
            OtherShape,
        ),
        (
            Anthropic,
            false,
            raw(200, r#"{"content":[],"stop_reason":null}"#),
            OtherShape,
        ),
        (OpenAi, true, raw(200, ""), BrokenStream),
        (OpenAi, true, raw(200, ": waiting\n\n"), BrokenStream),
        (OpenAi, true, raw(200, &events(&[text, stop])), BrokenStream),
        (
            OpenAi,
            true,
            raw(200, &events(&[text, "[DONE]"])),
            BrokenStream,
        ),
        (OpenAi, true, broken(&events(&[text])), BrokenStream),
        (OpenAi, true, raw(200, &events(&[text, "{}"])), OtherShape),
        (OpenAi, true, raw(200, &events(&["hello"])), OtherShape),
        (
            OpenAi,
            true,
            raw(200, &events(&[text, failed])),
            ErrorAnswer,
        ),
        (
            Anthropic,
            true,
            raw(200, &events(&[overloaded])),
            ErrorAnswer,
        ),
        (
            Anthropic,
            true,
            raw(200, &events(&[r#"{"type":"message_stop"}"#])),
            BrokenStream,
        ),
        (Anthropic, true, raw(200, &events(&[text])), OtherShape),
    ];
    for (route, stream, raw, kind) in rows {
        let invalid = read(*route, *stream, raw).expect_err("no answer");
        assert_eq!(invalid.kind, *kind, "{raw:?}: {invalid:?}");
        assert!(!invalid.what.is_empty(), "{raw:?}");
    }
}

#[test]
fn a_call_that_the_server_could_not_read_is_an_answer() {
    let error = r#"{"error":{"code":"bad_value","message":"time is no number"}}"#;
    let whole = read(OpenAi, false, &raw(500, error)).expect("an answer");
    assert_eq!(whole.refused.expect("refused").0, "bad_value");
    let text = r#"{"choices":[{"delta":{"content":"So: "}}]}"#;
    let streamed = read(OpenAi, true, &raw(200, &events(&[text, error]))).expect("an answer");
    assert_eq!(streamed.content, "So: ");
    assert!(
        streamed
            .refused
            .is_some_and(|(_, what)| what.contains("no number"))
    );
}
