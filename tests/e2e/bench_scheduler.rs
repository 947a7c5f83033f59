//! `lockstep bench scheduler` from outside: what it counts, never how fast anything was.

use super::json;
use serde_json::{Value, json};

/// Times that are there, above zero and in order.
fn check_times(times: &Value) {
    let at = |name: &str| times[name].as_f64().unwrap_or(f64::NAN);
    let ordered = 0.0 < at("p50") && at("p50") <= at("p99") && at("p99") <= at("max");
    assert!(
        ordered && 0.0 < at("mean") && at("mean") <= at("max"),
        "{times}"
    );
}

#[test]
fn every_variant_has_its_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.json");
    let path = path.to_str().expect("UTF-8");
    let bench = ["bench", "scheduler", "--json", "--save", path];
    let load = ["--seqs", "2,5", "--steps", "6", "--rounds", "1"];
    let report = json(&[&bench[..], &load].concat());
    assert_eq!(report["benchmark"], "scheduler");
    assert!(report["version"].is_string() && report["machine"]["num_processors"].is_u64());
    let variants = report["variants"].as_array().expect("variants");
    let mut names: Vec<String> = Vec::new();
    for variant in variants {
        let fields = ["model", "drafts", "prefix_cache"].map(|name| variant[name].to_string());
        names.push(fields.concat());
        let rows = variant["rows"].as_array().expect("rows");
        assert!(variant["linearity"].as_f64().is_some_and(|x| x > 0.0));
        let seqs: Vec<&Value> = rows.iter().map(|row| &row["seqs"]).collect();
        assert_eq!(seqs, [&json!(2), &json!(5)]);
        for row in rows {
            for field in ["plan_us", "commit_us", "step_us", "poll_us"] {
                check_times(&row[field]);
            }
            let count = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
            let (drafts, tokens) = (count("drafts_per_seq"), count("tokens_per_seq"));
            match variant["drafts"].as_str() {
                Some("off") => assert_eq!((drafts, tokens), (0.0, 1.0), "{row}"),
                // Some drafts come true and some don't.
                Some("own" | "recorded") => {
                    assert!(
                        0.0 < drafts && 1.0 < tokens && tokens < 1.0 + drafts,
                        "{row}"
                    );
                }
                _ => panic!("nobody drafts like that: {variant}"),
            }
            let num_more = count("query_tokens_per_seq") - (1.0 + drafts);
            assert!(
                num_more.abs() < 1e-9,
                "{num_more} more than was decoded: {row}"
            );
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(
        (names.len(), variants.len()),
        (12, 12),
        "2 models, 3 drafters, 2 caches"
    );
    let saved = std::fs::read_to_string(path).expect("it was saved");
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    assert_eq!(saved, report);
}
