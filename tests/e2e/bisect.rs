//! `lockstep bisect` from outside: checks of every kind, as a shell runs them.

use super::{json, run, stderr, stdout};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

const GOOD: &str = "\
workers = 2
model = \"embedded\"
[cache]
enabled = true
gib = 1.0
[draft]
kind = \"ngram\"
depth = 4
";
const BAD: &str = "\
workers = 4
model = \"embedded\"
[cache]
enabled = false
gib = 2.0
[draft]
kind = \"mtp\"
depth = 4
new.\"odd key\" = [1, 2]
";

/// Bad where both the drafter and the cache are those of the bad file.
const TWO: &str = "grep -q 'kind = \"mtp\"' {} && grep -q 'enabled = false' {} && exit 1; exit 0";

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(good: &str, bad: &str) -> Files {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("good.toml"), good).expect("written");
        fs::write(folder.path().join("bad.toml"), bad).expect("written");
        Files { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn args(&self, check: &str, more: &[&str]) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
        let mut args = vec![
            "bisect".to_owned(),
            "--good".to_owned(),
            text(self.path("good.toml")),
            "--bad".to_owned(),
            text(self.path("bad.toml")),
            "--check".to_owned(),
            check.to_owned(),
        ];
        args.extend(more.iter().map(|word| (*word).to_owned()));
        args
    }

    fn json(&self, check: &str, more: &[&str]) -> Value {
        let args = self.args(check, &[more, &["--json"]].concat());
        json(&args.iter().map(String::as_str).collect::<Vec<&str>>())
    }

    /// Exit code, standard output and standard error.
    fn run(&self, check: &str, more: &[&str]) -> (Option<i32>, String, String) {
        let args = self.args(check, more);
        let output = run(&args.iter().map(String::as_str).collect::<Vec<&str>>());
        (output.status.code(), stdout(&output), stderr(&output))
    }
}

fn num_files(folder: &Path, ending: &str) -> usize {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(ending))
        .count()
}

#[test]
fn two_settings_that_only_fail_together_are_found() {
    let files = Files::new(GOOD, BAD);
    let keep = files.path("trials");
    let keep_flag = keep.to_str().expect("UTF-8");
    let report = files.json(TWO, &["--keep", keep_flag]);
    assert_eq!(report["outcome"], "found");
    let names: Vec<&str> = report["differences"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|difference| difference["setting"].as_str())
        .collect();
    let expected = [
        "workers",
        "cache.enabled",
        "cache.gib",
        "draft.kind",
        "draft.new.\"odd key\"",
    ];
    assert_eq!(names, expected);
    let added = &report["differences"][4];
    assert_eq!(
        (&added["good"], &added["bad"]),
        (&Value::Null, &json!([1, 2]))
    );
    assert_eq!(report["set"], json!(["cache.enabled", "draft.kind"]));
    assert_eq!(report["shown"], json!({"smallest": true}));
    let trials = report["trials"].as_array().expect("trials");
    // Three of each end, and of the set and its two halves; each single setting at least once.
    let num_of = |names: Value| {
        let same = trials.iter().filter(|trial| trial["settings"] == names);
        same.count()
    };
    assert_eq!(num_of(json!([])), 3);
    assert_eq!(num_of(json!(["cache.enabled", "draft.kind"])), 3);
    assert_eq!(num_of(json!(["draft.kind"])), 3);
    assert_eq!(num_of(json!(["workers"])), 1);
    assert_eq!(num_files(&keep, ".toml"), trials.len());
    assert_eq!(num_files(&keep, ".log"), trials.len());

    let (code, page, _) = files.run(TWO, &["--exhaustive-max", "2"]);
    assert_eq!(code, Some(0));
    for part in [
        "5 settings differ",
        "2 settings together turn good into bad",
        "cache.enabled: true → false",
        "1-minimal",
        "--exhaustive-max 5 tries all",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("smallest:"), "{page}");
}

#[test]
fn the_environment_names_the_file_too() {
    let files = Files::new(GOOD, BAD);
    let check = "echo \"saw $LOCKSTEP_SETTINGS\"; ! grep -q 'workers = 4' \"$LOCKSTEP_SETTINGS\"";
    let report = files.json(check, &["--repeats", "1"]);
    assert_eq!(report["set"], json!(["workers"]));
    let line = report["trials"][0]["last_line"].as_str().expect("a line");
    assert!(
        line.starts_with("saw /") && line.ends_with(".toml"),
        "{line}"
    );
}

#[test]
fn ends_that_are_not_what_they_are_called() {
    let files = Files::new(GOOD, BAD);
    let count = files.path("count");
    let flips = format!(
        "echo x >> {0}; test $(($(wc -l < {0}) / 2 % 2)) = 0",
        count.display()
    );
    let rows = [
        ("exit 1", 6, "the good file is bad", "good_is_bad"),
        ("exit 0", 6, "the bad file is good", "bad_is_good"),
        (
            "grep -q 'workers = 4' {}",
            6,
            "swap --good and --bad",
            "swapped",
        ),
        (flips.as_str(), 6, "unstable", "unstable"),
        ("exit 3", 5, "could not be judged: none", "unjudged"),
        ("/no/such/check {}", 5, "could not be judged", "unjudged"),
    ];
    for (check, code, words, outcome) in rows {
        let (got, report, errors) = files.run(check, &["--json", "--repeats", "4"]);
        assert_eq!(got, Some(code), "{check}: {errors}");
        assert!(errors.contains(words), "{check}: {errors}");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["outcome"], outcome, "{check}");
    }
}

#[test]
fn what_can_not_be_judged_is_named() {
    let files = Files::new(GOOD, BAD);
    // With the new drafter alone the check breaks.
    let check = "grep -q 'kind = \"mtp\"' {} || exit 0
        grep -q 'enabled = false' {} && exit 1
        echo 'no such drafter' >&2; exit 7";
    let report = files.json(check, &[]);
    assert_eq!(report["set"], json!(["cache.enabled", "draft.kind"]));
    assert_eq!(report["unjudged_without"], json!(["cache.enabled"]));
    assert_eq!(report["shown"]["smallest"], false);
    assert_eq!(report["shown"]["unjudged"], json!([["draft.kind"]]));
    let (code, page, errors) = files.run(check, &[]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        page.contains("without cache.enabled it could not be judged"),
        "{page}"
    );
    assert!(
        page.contains("exit 7") && page.contains("no such drafter"),
        "{page}"
    );
    let (code, _, errors) = files.run(check, &["--stop-at-unjudged"]);
    assert_eq!(code, Some(5), "{errors}");
}

#[test]
fn files_that_can_not_be_used() {
    let same = Files::new(GOOD, GOOD);
    let (code, _, errors) = same.run("true", &[]);
    assert_eq!(code, Some(3));
    assert!(errors.contains("hold the same settings"), "{errors}");
    let broken = Files::new(GOOD, "a = \n");
    let (code, _, errors) = broken.run("true", &[]);
    assert_eq!(code, Some(3));
    assert!(
        errors.contains("bad.toml") && errors.contains("line 1"),
        "{errors}"
    );
    fs::remove_file(broken.path("bad.toml")).expect("removed");
    let (code, _, errors) = broken.run("true", &[]);
    assert_eq!(code, Some(3), "{errors}");
    let files = Files::new(GOOD, BAD);
    let full = files.folder.path().to_str().expect("UTF-8").to_owned();
    let (code, _, errors) = files.run("true", &["--keep", &full]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("not empty"), "{errors}");
    let (code, _, errors) = files.run("true", &["--repeats", "0"]);
    assert_eq!(code, Some(2), "{errors}");
}

/// A battery is settings and check at once: what of it starves the embedded model.
#[test]
fn a_battery_is_a_check() {
    let battery = |max_tokens: u32, temperature: &str, question: &str| {
        format!(
            "repeats = 3\n[defaults]\nmax_tokens = {max_tokens}\ntemperature = {temperature}\n\
             [[request]]\nname = \"capital\"\n\
             messages = [{{ role = \"user\", content = \"{question}\" }}]\n"
        )
    };
    let question = "What is the capital of Peru?";
    let files = Files::new(&battery(200, "0.5", question), &battery(4, "0.6", question));
    let program = env!("CARGO_BIN_EXE_lockstep");
    let check = |more: &str| format!("{program} battery {{}} {more} --fail-if 'starved > 0'");
    let report = files.json(&check(""), &["--repeats", "1"]);
    assert_eq!(report["set"], json!(["defaults.max_tokens"]), "{report}");
    assert_eq!(
        report["trials"][1]["last_line"],
        "error: starved > 0: 3 of 3"
    );
    // A server that is not there is neither good nor bad.
    let (code, _, errors) = files.run(&check("--url http://127.0.0.1:1/v1"), &[]);
    assert_eq!(code, Some(5), "{errors}");
}
