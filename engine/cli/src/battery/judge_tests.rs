//! One answer of each kind, and what is said of it.

use super::super::plan::{Overrides, Plan};
use super::*;

fn request(choice: &str) -> Request {
    let text = format!(
        r#"
[[request]]
name = "r"
messages = [{{ role = "user", content = "x" }}]
tool_choice = "{choice}"
[[request.tools]]
name = "set"
parameters = {{ type = "object", required = ["time"], properties = {{ time.type = "string" }} }}
"#
    );
    let plan = Plan::read(&text, &Overrides::default()).expect("a battery");
    plan.requests[0].clone()
}

fn text(content: &str, finish: Finish) -> Reply {
    Reply {
        content: content.to_owned(),
        reasoning: "Well.".to_owned(),
        calls: Vec::new(),
        finish,
        refused: None,
    }
}

fn call(id: Option<&str>, name: Option<&str>, arguments: Option<&str>) -> Reply {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Reply {
        calls: vec![Call {
            id: owned(id),
            name: owned(name),
            arguments: owned(arguments),
        }],
        ..text("", Finish::Calls)
    }
}

const TIME: Option<&str> = Some("{\"time\":\"12:15\"}");

#[test]
fn each_answer_is_what_it_is() {
    use Finish::{Calls, Length, Stop};
    let (id, set) = (Some("a"), Some("set"));
    let cut = |reply: Reply| Reply {
        finish: Length,
        ..reply
    };
    let rows: Vec<(Reply, &[&str])> = vec![
        (call(id, set, TIME), &["call"]),
        (cut(call(id, set, TIME)), &["call"]),
        (cut(call(id, set, Some("{\"time\""))), &["cut_call"]),
        (cut(call(id, set, None)), &["cut_call"]),
        (call(id, set, Some("{\"time\"")), &["malformed.no_json"]),
        (call(id, set, Some("")), &["malformed.no_json"]),
        (call(id, set, Some("{\"time\":5}")), &["malformed.schema"]),
        (call(id, set, Some("[]")), &["malformed.schema"]),
        (call(id, Some("get"), TIME), &["malformed.unknown_tool"]),
        (call(id, None, TIME), &["malformed.missing_name"]),
        (call(id, Some(""), TIME), &["malformed.missing_name"]),
        (call(None, set, TIME), &["malformed.missing_id"]),
        (call(Some(""), set, TIME), &["malformed.missing_id"]),
        (call(id, set, None), &["malformed.missing_arguments"]),
        (
            call(None, Some("get"), Some("x")),
            &[
                "malformed.missing_id",
                "malformed.no_json",
                "malformed.unknown_tool",
            ],
        ),
        (text("Hello.", Stop), &["text"]),
        (text("Hello", Length), &["text"]),
        (text("", Length), &["starved"]),
        (text(" \n", Length), &["starved"]),
        (text("", Stop), &["empty"]),
        (text("Done.", Calls), &["malformed.not_called"]),
        (
            text("<tool_call>{\"name\"", Stop),
            &["malformed.unclosed_markup", "markup.tag"],
        ),
        (
            text("<tool_call>{\"name\"", Length),
            &["cut_call", "markup.tag"],
        ),
        (
            text("<tool_call>{}</tool_call>", Stop),
            &["malformed.markup_in_text", "markup.tag"],
        ),
        (
            text("Hi<|im_end|>", Stop),
            &["markup.special_token", "text"],
        ),
        (text("Hm.</think>Hi", Stop), &["markup.tag", "text"]),
        (
            text(&"again\n".repeat(9), Stop),
            &["repetition.line", "text"],
        ),
        (
            text(&"and then ".repeat(40), Length),
            &["repetition.tail", "text"],
        ),
        (
            call(id, set, Some("{\"time\":\"<|user|>\"}")),
            &["call", "markup.special_token"],
        ),
    ];
    for (reply, expected) in rows {
        let judged = judge(&request("auto"), &reply);
        let mut names: Vec<&str> = judged.outcomes.iter().map(|o| o.name()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{reply:?}: {:?}", judged.details);
    }
    let refused = Reply {
        refused: Some(("bad_value".to_owned(), "bad_value: x".to_owned())),
        ..text("", Stop)
    };
    let judged = judge(&request("auto"), &refused);
    assert_eq!(judged.outcomes, BTreeSet::from([Outcome::Refused]));
}

#[test]
fn a_call_that_was_asked_for() {
    let required = request("required");
    let outcomes = |reply: &Reply| judge(&required, reply).outcomes;
    let not_called = BTreeSet::from([Outcome::NotCalled]);
    assert_eq!(outcomes(&text("No.", Finish::Stop)), not_called);
    assert_eq!(outcomes(&text("", Finish::Stop)), not_called);
    // There was no room for it.
    assert_eq!(
        outcomes(&text("", Finish::Length)),
        BTreeSet::from([Outcome::Starved])
    );
    assert_eq!(
        outcomes(&text("So", Finish::Length)),
        BTreeSet::from([Outcome::Text])
    );
}

#[test]
fn names_are_there_and_back() {
    for outcome in Outcome::ALL {
        assert_eq!(Outcome::of_name(outcome.name()), Some(*outcome));
        assert!(!outcome.what().is_empty());
    }
    assert_eq!(Outcome::of_name("malformed"), None);
    assert_eq!(Outcome::Schema.group(), Some("malformed"));
    assert_eq!(Outcome::Call.group(), None);
}
