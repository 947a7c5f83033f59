//! The JSON Schema Test Suite: a schema is enforced or refused, and where it is enforced no invalid instance may be
//! in the grammar. The counts are part of `docs/structured-outputs.md`; `UPDATE_EXPECT=1` renews them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use lockstep_grammar::{SchemaLimits, checked_document};
use serde_json::Value;

use crate::recogniser::{Recogniser, spaced};

const BEGIN: &str = "<!-- counts: begin -->\n";
const END: &str = "<!-- counts: end -->\n";

#[derive(Default)]
struct Counts {
    enforced: usize,
    refused: usize,
    accepted: usize,
    narrower: usize,
    rejected: usize,
    wrong: usize,
}

fn files() -> Vec<PathBuf> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema_suite/fixtures/draft2020-12");
    let mut files = Vec::new();
    for folder in [
        root.clone(),
        root.join("optional"),
        root.join("optional/format"),
    ] {
        let mut inside: Vec<PathBuf> = std::fs::read_dir(folder)
            .expect("the fixture is there")
            .map(|entry| entry.expect("a readable entry").path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .collect();
        inside.sort();
        files.extend(inside);
    }
    files
}

fn name(file: &Path) -> String {
    let text = file
        .with_extension("")
        .display()
        .to_string()
        .replace('\\', "/");
    let name = text
        .rsplit_once("draft2020-12/")
        .map_or(text.as_str(), |(_, name)| name);
    name.to_string()
}

/// Runs one file; wrong accepts are described in the list.
fn run(file: &Path, wrong: &mut Vec<String>) -> Counts {
    let text = std::fs::read_to_string(file).expect("a readable fixture");
    let groups: Vec<Value> = serde_json::from_str(&text).expect("a list of groups");
    let mut counts = Counts::default();
    for group in &groups {
        let schema = &group["schema"];
        let Ok(document) = checked_document(schema, &SchemaLimits::default()) else {
            counts.refused += 1;
            continue;
        };
        let recogniser = Recogniser::of_document(&document).unwrap_or_else(|error| {
            panic!("{schema} is taken as {document}, which does not compile: {error}")
        });
        counts.enforced += 1;
        for test in group["tests"].as_array().expect("a list of tests") {
            let data = &test["data"];
            let is_taken = [data.to_string(), spaced(data)].map(|text| recogniser.accepts(&text));
            match (test["valid"] == true, is_taken) {
                (true, [true, true]) => counts.accepted += 1,
                (true, _) => counts.narrower += 1,
                (false, [false, false]) => counts.rejected += 1,
                (false, _) => {
                    counts.wrong += 1;
                    wrong.push(format!("{}: {schema} takes {data}", name(file)));
                }
            }
        }
    }
    counts
}

#[test]
fn the_test_suite_finds_nothing_invalid_in_a_grammar() {
    let mut table = String::from(
        "| File of the suite | Schemas enforced | Schemas refused | Valid, written | Valid, not written | \
         Invalid, kept out | Invalid, written |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    let (mut wrong, mut all) = (Vec::new(), Counts::default());
    let mut row = |name: &str, c: &Counts| {
        let _ = writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            c.enforced, c.refused, c.accepted, c.narrower, c.rejected, c.wrong
        );
    };
    for file in files() {
        let counts = run(&file, &mut wrong);
        row(&format!("`{}`", name(&file)), &counts);
        all.enforced += counts.enforced;
        all.refused += counts.refused;
        all.accepted += counts.accepted;
        all.narrower += counts.narrower;
        all.rejected += counts.rejected;
        all.wrong += counts.wrong;
    }
    row("all", &all);
    assert!(
        wrong.is_empty(),
        "invalid instances are in the grammar:\n{}",
        wrong.join("\n")
    );
    assert!(
        all.enforced > 150 && all.accepted > 500 && all.rejected > 500,
        "{table}"
    );
    compare(&table);
}

/// Compares the table in the documentation, or renews it.
fn compare(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/structured-outputs.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page
        .split_once(BEGIN)
        .expect("the page has a place for the counts");
    let (found, after) = rest.split_once(END).expect("the place for the counts ends");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let renewed = format!("{before}{BEGIN}{table}{END}{after}");
        std::fs::write(&path, renewed).expect("the page can be written");
        return;
    }
    assert!(
        found == table,
        "docs/structured-outputs.md has other counts; renew it with UPDATE_EXPECT=1. Now:\n{table}"
    );
}
