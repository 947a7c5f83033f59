//! `lockstep battery` from outside: against a server that answers as it is told, one test per kind of answer,
//! and against `lockstep serve`.

use super::{
    json as run_json, root, run,
    running::Running,
    scripted::{Asked, Scripted, answer, json, stream},
    stderr, stdout,
};
use serde_json::{Value, json as value};
use std::{fs, path::PathBuf};

const BATTERY: &str = r#"
repeats = 4
[defaults]
max_tokens = 64
temperature = 1.0
[[request]]
name = "alarm"
messages = [{ role = "user", content = "set my alarm to 12:15" }]
[[request.tools]]
name = "set_alarm"
description = "Set an alarm"
[request.tools.parameters]
type = "object"
required = ["time"]
properties = { time = { type = "string" } }
"#;

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(battery: &str) -> Files {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("battery.toml"), battery).expect("written");
        Files { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// Exit code, standard output and standard error.
    fn run(&self, url: &str, more: &[&str]) -> (Option<i32>, String, String) {
        let battery = self.text("battery.toml");
        let args = ["battery", &battery, "--url", url, "--concurrency", "1"];
        let output = run(&[&args[..], more].concat());
        (output.status.code(), stdout(&output), stderr(&output))
    }
}

/// What the battery says of a server that answers so; also the exit code.
fn judged(
    more: &[&str],
    script: impl Fn(&Asked) -> String + Send + 'static,
) -> (Value, Option<i32>, String) {
    let server = Scripted::start(script);
    let files = Files::new(BATTERY);
    let (code, report, errors) = files.run(&server.url(), &[&["--json"][..], more].concat());
    let report = serde_json::from_str(&report).unwrap_or_else(|e| panic!("{e}: {errors}"));
    (report, code, errors)
}

/// A whole chat answer with this message.
fn chat(message: &Value, finish: &str) -> String {
    let body = value!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    json(200, &body.to_string())
}

fn call(id: Value, name: Value, arguments: Value) -> Value {
    let function = value!({"name": name, "arguments": arguments});
    value!({"content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

/// All four answers are this, and nothing else that is listed.
fn all_are(message: &Value, finish: &str, names: &[&str]) {
    let answer = chat(message, finish);
    let (report, code, errors) = judged(&[], move |_| answer.clone());
    assert_eq!(code, Some(0), "{errors}");
    let cell = &report["cells"][0];
    assert_eq!(
        (&cell["valid"], &cell["invalid"]),
        (&value!(4), &value!({}))
    );
    let outcomes = cell["outcomes"].as_object().expect("outcomes");
    let seen = outcomes.iter().filter(|(_, share)| share["k"] != 0);
    let mut seen: Vec<&str> = seen.map(|(name, _)| name.as_str()).collect();
    seen.sort_unstable();
    assert_eq!(seen, names, "{message}");
    for name in names {
        assert_eq!(outcomes[*name]["k"], 4, "{message}");
    }
}

#[test]
fn a_well_formed_call() {
    all_are(
        &call(
            value!("a"),
            value!("set_alarm"),
            value!("{\"time\":\"12:15\"}"),
        ),
        "tool_calls",
        &["call"],
    );
}

#[test]
fn arguments_that_are_no_json() {
    let message = call(value!("a"), value!("set_alarm"), value!("{\"time\":"));
    all_are(&message, "tool_calls", &["malformed", "malformed.no_json"]);
}

#[test]
fn arguments_that_are_not_of_the_schema() {
    let message = call(value!("a"), value!("set_alarm"), value!("{\"time\":1215}"));
    all_are(&message, "tool_calls", &["malformed", "malformed.schema"]);
}

#[test]
fn a_tool_that_was_not_offered() {
    let message = call(value!("a"), value!("set_clock"), value!("{}"));
    all_are(
        &message,
        "tool_calls",
        &["malformed", "malformed.unknown_tool"],
    );
}

#[test]
fn a_call_without_a_name_an_id_or_arguments() {
    let arguments = value!("{\"time\":\"12:15\"}");
    let message = call(value!("a"), Value::Null, arguments.clone());
    all_are(
        &message,
        "tool_calls",
        &["malformed", "malformed.missing_name"],
    );
    let message = call(Value::Null, value!("set_alarm"), arguments);
    all_are(
        &message,
        "tool_calls",
        &["malformed", "malformed.missing_id"],
    );
    let message = call(value!("a"), value!("set_alarm"), value!({"time": "12:15"}));
    all_are(
        &message,
        "tool_calls",
        &["malformed", "malformed.missing_arguments"],
    );
}

#[test]
fn a_call_that_stands_in_the_text() {
    let message = value!({"content": "<tool_call>{\"name\": \"set_alarm\""});
    all_are(
        &message,
        "stop",
        &[
            "malformed",
            "malformed.unclosed_markup",
            "markup",
            "markup.tag",
        ],
    );
    let message = value!({"content": "<tool_call>{\"name\": \"set_alarm\"}</tool_call>"});
    all_are(
        &message,
        "stop",
        &[
            "malformed",
            "malformed.markup_in_text",
            "markup",
            "markup.tag",
        ],
    );
}

#[test]
fn calls_that_were_promised() {
    let message = value!({"content": "Done."});
    all_are(
        &message,
        "tool_calls",
        &["malformed", "malformed.not_called"],
    );
}

#[test]
fn a_call_that_the_limit_cut_off() {
    let message = call(value!("a"), value!("set_alarm"), value!("{\"time\":"));
    all_are(&message, "length", &["cut_call"]);
}

#[test]
fn a_starved_answer() {
    let message = value!({"content": null, "reasoning_content": "The user says: set my"});
    all_are(&message, "length", &["starved"]);
    all_are(&value!({"content": ""}), "length", &["starved"]);
}

#[test]
fn an_empty_answer_and_text() {
    all_are(&value!({"content": null}), "stop", &["empty"]);
    all_are(&value!({"content": "It is set."}), "stop", &["text"]);
}

#[test]
fn special_tokens_and_tags_in_the_text() {
    let message = value!({"content": "It is set.<|im_end|>"});
    all_are(
        &message,
        "stop",
        &["markup", "markup.special_token", "text"],
    );
    let message = value!({"content": "So I set it.</think>It is set."});
    all_are(&message, "stop", &["markup", "markup.tag", "text"]);
}

#[test]
fn answers_that_go_round_in_circles() {
    let message = value!({"content": "It is set.\n".repeat(12)});
    all_are(
        &message,
        "length",
        &["repetition", "repetition.line", "text"],
    );
    let message = value!({"content": "and it is set ".repeat(12)});
    all_are(
        &message,
        "length",
        &["repetition", "repetition.tail", "text"],
    );
}

#[test]
fn a_call_that_the_server_could_not_read() {
    let body = r#"{"error":{"message":"time is no text","type":"x","code":"bad_value"}}"#;
    let (report, code, errors) = judged(&[], move |_| json(500, body));
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(report["cells"][0]["outcomes"]["malformed.refused"]["k"], 4);
}

#[test]
fn identical_answers_with_other_seeds() {
    let text = |content: String| chat(&value!({"content": content}), "stop");
    let same = text("It is set.".to_owned());
    let (report, code, _) = judged(&["--fail-if", "identical > 0"], move |_| same.clone());
    assert_eq!(
        (code, &report["cells"][0]["identical"]),
        (Some(1), &value!(true))
    );
    let (report, code, _) = judged(&["--fail-if", "identical > 0"], move |asked| {
        text(format!("It is set to {}.", asked.idx / 2))
    });
    assert_eq!(
        (code, &report["cells"][0]["identical"]),
        (Some(0), &value!(false))
    );
    assert_eq!(report["cells"][0]["different_answers"], 2);
}

/// All four responses are no model output, of this kind, and the battery can't be judged.
fn all_are_invalid(more: &[&str], kind: &str, script: impl Fn(&Asked) -> String + Send + 'static) {
    let more = [more, &["--fail-if", "malformed > 0"]].concat();
    let (report, code, errors) = judged(&more, script);
    assert_eq!(code, Some(5), "{kind}: {errors}");
    assert!(
        errors.contains("4 of 4 responses are no model output"),
        "{errors}"
    );
    let cell = &report["cells"][0];
    assert_eq!(cell["invalid"], value!({kind: 4}), "{report}");
    assert_eq!(
        (&cell["valid"], &report["verdict"]),
        (&value!(0), &value!("unjudged"))
    );
    let outcomes = cell["outcomes"].as_object().expect("outcomes");
    assert!(
        outcomes
            .values()
            .all(|share| share["k"] == 0 && share["n"] == 0)
    );
}

const TEXT: &str = r#"{"choices":[{"delta":{"content":"It"}}]}"#;
const STOP: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn a_proxy_page() {
    let page = "<html><h1>502 Bad Gateway</h1></html>";
    all_are_invalid(&[], "http_status", move |_| answer(502, "text/html", page));
    all_are_invalid(&[], "other_body", move |_| answer(200, "text/html", page));
    all_are_invalid(&["--stream", "on"], "other_body", move |_| {
        answer(200, "text/html", page)
    });
}

#[test]
fn an_error_answer() {
    let error = r#"{"error":{"message":"too much waits","code":"queue_full"}}"#;
    all_are_invalid(&[], "error_answer", move |_| json(429, error));
    all_are_invalid(&["--stream", "on"], "error_answer", move |_| {
        stream(&[TEXT, error])
    });
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"later"}}"#;
    all_are_invalid(&["--route", "anthropic"], "error_answer", move |_| {
        json(529, error)
    });
}

#[test]
fn json_of_another_shape() {
    all_are_invalid(&[], "other_shape", |_| json(200, r#"{"status":"ok"}"#));
    // An answer of the other API.
    let message = r#"{"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}"#;
    all_are_invalid(&[], "other_shape", move |_| json(200, message));
}

#[test]
fn a_stream_without_its_end() {
    all_are_invalid(&["--stream", "on"], "broken_stream", |_| {
        stream(&[TEXT, STOP])
    });
    all_are_invalid(&["--stream", "on"], "broken_stream", |_| {
        stream(&[TEXT, "[DONE]"])
    });
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text"}}"#;
    let more = ["--stream", "on", "--route", "anthropic"];
    all_are_invalid(&more, "broken_stream", move |_| stream(&[start]));
}

#[test]
fn connections_that_end_without_an_answer() {
    all_are_invalid(&[], "transport", |_| String::new());
    all_are_invalid(&[], "transport", |_| {
        "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"choices\"".to_owned()
    });
}

#[test]
fn a_few_responses_that_are_none_are_not_counted() {
    let good = chat(&value!({"content": "It is set."}), "stop");
    let (report, code, errors) = judged(&["--repeats", "10"], move |asked| match asked.idx % 5 {
        0 => json(500, "{}"),
        _ => good.clone(),
    });
    assert_eq!(code, Some(0), "{errors}");
    let share = &report["cells"][0]["outcomes"]["text"];
    assert_eq!((&share["k"], &share["n"]), (&value!(8), &value!(8)));
    assert_eq!(report["invalid"], 2);
}

#[test]
fn conditions_decide_the_exit_code() {
    let script = |asked: &Asked| {
        let time = if asked.idx == 1 {
            value!("{}")
        } else {
            value!("{\"time\":\"12:15\"}")
        };
        chat(&call(value!("a"), value!("set_alarm"), time), "tool_calls")
    };
    for (condition, code) in [
        ("malformed > 0", 1),
        ("malformed > 1", 0),
        ("alarm: malformed.schema >= 25 %", 1),
        ("call < 75 %", 0),
        ("starved > 0", 0),
    ] {
        let (report, got, errors) = judged(&["--fail-if", condition], script);
        assert_eq!(got, Some(code), "{condition}: {errors}");
        assert_eq!(report["conditions"][0]["holds"], code == 1, "{report}");
    }
    let share = &judged(&[], script).0["cells"][0]["outcomes"]["call"];
    let near = |field: &str, expected: f64| {
        (share[field].as_f64().expect("a rate") - expected).abs() < 1e-4
    };
    // Clopper and Pearson of 3 of 4.
    assert!(near("low", 0.1941) && near("high", 0.9937), "{share}");
    let files = Files::new(BATTERY);
    for (condition, words) in [
        ("misformed > 0", "no outcome"),
        ("b: text > 0", "no request"),
    ] {
        let (code, _, errors) = files.run("http://127.0.0.1:1/v1", &["--fail-if", condition]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
}

#[test]
fn a_second_run_goes_on_where_the_first_ended() {
    let good = chat(&value!({"content": "It is set."}), "stop");
    let server = Scripted::start(move |asked| match asked.idx {
        2 => json(500, "{}"),
        _ => good.clone(),
    });
    let files = Files::new(BATTERY);
    let out = files.text("r.jsonl");
    let (code, _, errors) = files.run(&server.url(), &["--out", &out, "--api-key", "sk-secret"]);
    assert_eq!(code, Some(0), "{errors}");
    let seeds = |asked: &[String]| -> Vec<Value> {
        let seed =
            |body: &String| serde_json::from_str::<Value>(body).expect("JSON")["seed"].clone();
        asked.iter().map(seed).collect()
    };
    assert_eq!(seeds(&server.asked()), [1, 2, 3, 4].map(Value::from));
    let text = fs::read_to_string(&out).expect("it was written");
    assert_eq!(text.lines().count(), 5);
    assert!(!text.contains("sk-secret") && !errors.contains("sk-secret"));
    // Cut off in the middle of the last line.
    fs::write(&out, &text[..text.len() - 20]).expect("written");
    let (code, page, errors) = files.run(&server.url(), &["--out", &out]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        errors.contains("3 exchanges are there already, 1 to go"),
        "{errors}"
    );
    assert!(page.contains("all 4 exchanges"), "{page}");
    assert_eq!(seeds(&server.asked()[4..]), [value!(4)]);
    // What was no answer is asked again only where that is wanted.
    files.run(&server.url(), &["--out", &out]);
    assert_eq!(server.asked().len(), 5);
    let (_, page, _) = files.run(&server.url(), &["--out", &out, "--retry-invalid"]);
    assert_eq!(seeds(&server.asked()[5..]), [value!(3)]);
    assert!(page.contains("every response is model output"), "{page}");
    // Other settings are refused, and named.
    for (more, words) in [
        (&["--repeats", "5"][..], "battery.repeats"),
        (&["--seed", "2"], "seed"),
        (&["--stream", "on"], "battery.requests.alarm.sent"),
        (&["--api-model", "other"], "model"),
    ] {
        let (code, _, errors) = files.run(
            &server.url(),
            &[&["--out", out.as_str()][..], more].concat(),
        );
        assert_eq!(code, Some(3), "{errors}");
        assert!(
            errors.contains("other settings") && errors.contains(words),
            "{errors}"
        );
    }
    assert_eq!(server.asked().len(), 6);
}

#[test]
fn both_apis_are_told_the_key_and_nobody_else_is() {
    let server = Scripted::start(|asked| {
        let head = asked.head.to_lowercase();
        let told = head.contains("authorization: bearer sk-secret-key")
            && head.contains("x-api-key: sk-secret-key")
            && head.contains("anthropic-version: ");
        assert!(told, "{head}");
        json(401, r#"{"error":{"message":"wrong key sk-secret-key"}}"#)
    });
    let files = Files::new(BATTERY);
    let out = files.text("r.jsonl");
    let more = [
        "--api-key",
        "sk-secret-key",
        "--route",
        "openai,anthropic",
        "--out",
        &out,
    ];
    let (code, page, errors) = files.run(&server.url(), &more);
    assert_eq!(code, Some(5), "{errors}");
    let (code, report, more_errors) = files.run(&server.url(), &[&more[..], &["--json"]].concat());
    assert_eq!(code, Some(5), "{more_errors}");
    let text = fs::read_to_string(&out).expect("it was written");
    assert!(text.contains("wrong key …"), "{text}");
    for shown in [page, errors, report, more_errors, text] {
        assert!(!shown.contains("sk-secret"), "{shown}");
    }
}

#[test]
fn two_files_are_compared() {
    let files = Files::new(BATTERY);
    let results = |name: &str, num_bad: usize| {
        let server = Scripted::start(move |asked| {
            let time = if asked.idx < num_bad {
                "{}"
            } else {
                "{\"time\":\"12:15\"}"
            };
            chat(
                &call(value!("a"), value!("set_alarm"), value!(time)),
                "tool_calls",
            )
        });
        let out = files.text(name);
        let (code, _, errors) = files.run(&server.url(), &["--repeats", "84", "--out", &out]);
        assert_eq!(code, Some(0), "{errors}");
        out
    };
    let (none, few, many) = (results("a", 0), results("b", 3), results("c", 20));
    let output = run(&["battery", "compare", &none, &few]);
    let page = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{page}");
    assert!(
        page.contains("0 of 84 bounds the rate below 3.5 %"),
        "{page}"
    );
    assert!(
        page.contains("fewer than 6 of 84 would not have shown"),
        "{page}"
    );
    let output = run(&["battery", "compare", &none, &many, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = report["comparisons"].as_array().expect("rows").iter();
    let row = { row }
        .find(|row| row["outcome"] == "malformed.schema")
        .expect("compared");
    assert_eq!(
        (&row["a"]["k"], &row["b"]["k"], &row["differs"]),
        (&value!(0), &value!(20), &value!(true))
    );
    let p = row["p"].as_f64().expect("a chance");
    assert!(
        p < 1e-6 && row["p_all"].as_f64().expect("a chance") >= p,
        "{row}"
    );
    assert_eq!(report["settings_that_differ"][0], "about");
    let output = run(&["battery", "compare", &none, "/no/such/file"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn nobody_listens_and_no_battery() {
    let files = Files::new("[[request]]\nname = \"a\"\n");
    let (code, _, errors) = files.run("http://127.0.0.1:1/v1", &[]);
    assert_eq!(code, Some(3));
    assert!(errors.contains("messages"), "{errors}");
    let files = Files::new(BATTERY);
    let (code, _, errors) = files.run("http://127.0.0.1:1/v1", &[]);
    assert_eq!(code, Some(3), "{errors}");
    let (code, _, errors) = files.run("https://127.0.0.1/v1", &[]);
    assert_eq!(code, Some(2), "{errors}");
    let output = run(&["battery"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

/// The example of the documentation, against the embedded model, in four ways.
#[test]
fn the_embedded_model_makes_well_formed_calls() {
    let server = Running::start(&[]);
    let url = format!("http://{}/v1", server.address);
    let battery = root().join("docs/battery-example.toml");
    let battery = battery.to_str().expect("UTF-8");
    let args = [
        "battery",
        battery,
        "--repeats",
        "3",
        "--json",
        "--url",
        &url,
    ];
    let report = run_json(&[&args[..], &["--fail-if", "malformed > 0"]].concat());
    assert_eq!(
        (&report["invalid"], &report["verdict"]),
        (&value!(0), &value!("fine"))
    );
    let cells = report["cells"].as_array().expect("cells");
    assert!(cells.len() >= 12, "{}", cells.len());
    let called = &report["totals"]["call"]["k"];
    assert!(called.as_u64().expect("a count") > 0, "{report}");
    assert_eq!(report["totals"]["markup"]["k"], 0, "{report}");
    assert!(cells.iter().all(|cell| cell["valid"] == 3), "{report}");
}

#[test]
fn no_two_exchanges_share_a_seed() {
    let good = chat(&value!({"content": "It is set."}), "stop");
    let server = Scripted::start(move |_| good.clone());
    let files = Files::new(BATTERY);
    let routes = ["--route", "openai,anthropic"];
    files.run(&server.url(), &routes);
    let seed = |body: &String| serde_json::from_str::<Value>(body).expect("JSON")["seed"].as_u64();
    let seeds: Vec<Option<u64>> = server.asked().iter().map(seed).collect();
    assert_eq!(seeds, (1..=8).map(Some).collect::<Vec<_>>());
    // One seed is no sample, and the report says so.
    let fixed = Files::new(&BATTERY.replace("[defaults]", "[defaults]\nseed = 9"));
    let (_, page, errors) = fixed.run(&server.url(), &[]);
    assert!(
        page.contains("one seed, or temperature 0"),
        "{page}{errors}"
    );
    assert!(server.asked()[8..].iter().all(|body| seed(body) == Some(9)));
}

/// Hashes say anything at all, and nobody's answer breaks the battery.
#[test]
fn a_model_of_hashes_in_this_process() {
    let files = Files::new(&BATTERY.replace("max_tokens = 64", "max_tokens = 12"));
    let battery = files.text("battery.toml");
    let args = [
        "battery",
        &battery,
        "--backend",
        "fingerprint",
        "--route",
        "openai,anthropic",
    ];
    let report = run_json(&[&args[..], &["--json"]].concat());
    assert_eq!(report["exchanges"], 8);
    assert_eq!(report["invalid"], 0, "{report}");
    assert_eq!(report["settings"]["url"], Value::Null);
}
