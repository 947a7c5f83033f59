//! An incident as a file: recorded by a running server, fetched with the admin key, replayed by another process.

use super::http::{self, Response};
use super::{json, root, run, running::Running, stderr, stdout};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const KEY: &str = "only-for-admins";

fn fetch(server: &Running, id: &str, key: Option<&str>) -> Response {
    let key = key.map_or(String::new(), |key| format!("x-api-key: {key}\r\n"));
    let bytes =
        format!("GET /captures/{id} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{key}\r\n");
    http::raw(server.address, bytes.as_bytes()).expect("an answer")
}

/// Asks something, and gives the id of the request.
fn ask(server: &Running, mut body: Value, id: &str) -> Response {
    body["model"] = Value::from(server.model.as_str());
    let body = body.to_string();
    let bytes = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         content-type: application/json\r\nx-request-id: {id}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len(),
    );
    let answer = http::raw(server.address, bytes.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

fn question(nth: usize) -> Value {
    let tool = json!({"type": "function", "function": {"name": "add", "strict": true,
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}},
            "required": ["a"], "additionalProperties": false}}});
    let mut body = json!({
        "messages": [{"role": "user", "content": format!("What is {nth} plus 4?")}],
        "max_tokens": 24, "seed": nth, "temperature": 0.7, "stream": nth.is_multiple_of(2),
    });
    if nth.is_multiple_of(3) {
        body["tools"] = json!([tool]);
        body["tool_choice"] = json!("required");
    }
    body
}

/// Serves, asks, and fetches the capture of each request into a file.
pub(super) fn incidents(folder: &Path, flags: &[&str], num: usize) -> Vec<PathBuf> {
    let path = folder.join("ring");
    let path = path.to_str().expect("UTF-8");
    let own = ["--captures", path, "--admin-key", KEY];
    let server = Running::start(&[flags, &own].concat());
    let ids: Vec<String> = (0..num).map(|nth| format!("incident-{nth}")).collect();
    for (nth, id) in ids.iter().enumerate() {
        ask(&server, question(nth), id);
    }
    let files = ids.iter().map(|id| {
        let answer = fetch(&server, id, Some(KEY));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let file = folder.join(format!("{id}.capture"));
        std::fs::write(&file, &answer.body).expect("a file");
        file
    });
    files.collect()
}

fn stage<'a>(report: &'a Value, name: &str) -> &'a Value {
    let stages = report["stages"].as_array().expect("stages");
    let found = stages.iter().find(|own| own["stage"] == name);
    found.unwrap_or_else(|| panic!("no stage {name} in {report}"))
}

#[test]
fn what_was_recorded_replays_elsewhere_on_other_instructions() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = incidents(folder.path(), &["--speculate", "forced:4,suffix:3"], 4);
    for (nth, file) in files.iter().enumerate() {
        let file = file.to_str().expect("UTF-8");
        let lack: &[&str] = match nth.is_multiple_of(3) {
            true => &["--may-lack", "state_row"],
            false => &["--may-lack", "state_row,mask"],
        };
        let how = [
            ["--isa", "scalar", "--threads", "1"],
            ["--isa", "auto", "--threads", "3"],
        ];
        let how = how[nth % 2];
        let report = json(&[&["replay", file, "--json"], lack, &how].concat());
        assert_eq!(report["guilty"], Value::Null, "{report}");
        for name in [
            "schedule",
            "logits",
            "draw",
            "verify",
            "detokenize",
            "stop",
            "tags",
        ] {
            let found = stage(&report, name);
            assert_eq!(found["compared"], found["agreeing"], "{found}");
            assert_eq!(found["observed"], true, "{found}");
        }
        let masks = stage(&report, "mask");
        assert_eq!(masks["observed"], nth.is_multiple_of(3), "{masks}");
    }
    // What nobody observed is no pass.
    let file = files[1].to_str().expect("UTF-8");
    let output = run(&["replay", file]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.contains("not observed") && said.contains("no request was constrained"),
        "{said}"
    );
    // The whole recording is a capture too.
    let ring = std::fs::read_dir(folder.path().join("ring")).expect("a folder");
    let ring: Vec<PathBuf> = ring.map(|own| own.expect("an entry").path()).collect();
    assert_eq!(ring.len(), 1);
    let ring = ring[0].to_str().expect("UTF-8");
    let report = json(&["replay", ring, "--json", "--may-lack", "state_row"]);
    assert_eq!(report["sequences"], 4);
    assert_eq!(report["guilty"], Value::Null);
}

#[test]
fn another_package_or_no_capture_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = incidents(folder.path(), &["--backend", "fingerprint"], 1);
    let file = files[0].to_str().expect("UTF-8");
    let other = root().join("tests/fixtures/models/qwen3");
    let other = other.to_str().expect("UTF-8");
    let output = run(&["replay", file, "-m", other]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("the capture is of"),
        "{}",
        stderr(&output)
    );
    let cut = folder.path().join("cut.capture");
    let bytes = std::fs::read(file).expect("a file");
    std::fs::write(&cut, &bytes[..bytes.len() - 7]).expect("a file");
    let lack = "state_row,tags,mask,stop,stream";
    let output = run(&["replay", cut.to_str().expect("UTF-8"), "--may-lack", lack]);
    assert_eq!(output.status.code(), Some(5), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("cut short at byte"),
        "{}",
        stderr(&output)
    );
    let output = run(&["replay", other]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    let output = run(&["replay", "Cargo.toml", "--may-lack", "masks"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("expected one of"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn captures_are_for_holders_of_the_admin_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let flags = [
        "--backend",
        "fingerprint",
        "--api-key",
        "k",
        "--captures",
        path,
    ];
    let with_key = [&flags[..], &["--admin-key", KEY]].concat();
    let open = ["--backend", "fingerprint", "--captures", path];
    let server = Running::start(&[&open[..], &["--admin-key", KEY]].concat());
    ask(&server, question(1), "mine");
    for (key, id, status) in [
        (None, "mine", 401),
        (Some("k"), "mine", 401),
        (Some(KEY), "mine", 200),
        (Some(KEY), "yours", 404),
    ] {
        let answer = fetch(&server, id, key);
        assert_eq!(answer.status, status, "{key:?} {id}: {}", answer.text());
    }
    assert!(server.metric("lockstep_capture_records_lost") == 0.0);
    drop(server);
    let server = Running::start(&open);
    assert_eq!(fetch(&server, "mine", Some(KEY)).status, 403);
    drop(server);
    let server = Running::start(&["--backend", "fingerprint", "--captures", "off"]);
    assert_eq!(fetch(&server, "mine", Some(KEY)).status, 404);
    drop(server);
    // Keys of clients don't open it either.
    let output = run(&[&["serve", "--port", "0", "--admin-key", ""], &with_key[..0]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
