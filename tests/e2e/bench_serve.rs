//! `lockstep bench serve` from outside: what it counts, never how fast anything was.

use super::{json, run, running::Running, stderr};
use serde_json::{Value, json};

const HASHES: [&str; 2] = ["--backend", "fingerprint"];

/// A report whose runs all succeeded, each with figures in every field that is promised.
fn check(report: &Value, num_runs: usize, num_requests: u64) {
    assert_eq!(report["benchmark"], "serve");
    assert!(report["version"].is_string() && report["machine"]["num_processors"].is_u64());
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), num_runs, "{report}");
    for run in runs {
        let requests = json!({"sent": num_requests, "succeeded": num_requests, "failed": 0});
        assert_eq!(run["requests"], requests, "{run}");
        assert_eq!(run["errors"], json!({}));
        let ends = run["finish_reasons"].as_object().expect("reasons");
        let num_ends: u64 = ends.values().filter_map(Value::as_u64).sum();
        assert_eq!(num_ends, num_requests);
        for field in ["seconds", "tokens_per_second", "requests_per_second"] {
            assert!(
                run[field].as_f64().is_some_and(|value| value > 0.0),
                "{field}: {run}"
            );
        }
        for field in ["ttft_ms", "itl_ms", "per_token_ms", "e2e_ms"] {
            let spread = &run[field];
            let at = |name: &str| spread[name].as_f64().unwrap_or(f64::NAN);
            let ordered = at("p50") <= at("p90") && at("p90") <= at("p99");
            assert!(ordered && at("p99") <= at("max"), "{field}: {run}");
        }
        assert_eq!(run["e2e_ms"]["count"], num_requests);
        for weight in ["request_weighted", "token_weighted"] {
            assert!(run["request_tokens_per_second"][weight].is_f64(), "{run}");
        }
        assert!(
            run["server"]["steps"]
                .as_f64()
                .is_some_and(|steps| steps > 0.0),
            "{run}"
        );
    }
}

#[test]
fn closed_loops_against_a_server_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.json");
    let path = path.to_str().expect("UTF-8");
    let load = ["--concurrency", "1,3", "--requests", "6", "--warmup", "2"];
    let what = [
        "--workload",
        "synthetic",
        "--prompt-tokens",
        "40",
        "--max-tokens",
        "8",
    ];
    let bench = ["bench", "serve", "--json", "--save", path];
    let report = json(&[&bench[..], &load, &what, &HASHES].concat());
    check(&report, 2, 6);
    assert_eq!(report["server"]["in_process"], true);
    assert_eq!(report["server"]["model"], "embedded");
    for (run, concurrency) in report["runs"].as_array().expect("runs").iter().zip([1, 3]) {
        assert_eq!(
            run["load"],
            json!({"kind": "closed", "concurrency": concurrency})
        );
        // Synthetic answers go to their limit, and prompts are about as long as was asked.
        assert_eq!(run["tokens"]["completion"], 6 * 8);
        assert_eq!(run["finish_reasons"], json!({"length": 6}));
        let prompt = run["tokens"]["prompt"].as_f64().expect("a count") / 6.0;
        assert!(
            (20.0..=80.0).contains(&prompt),
            "{prompt} tokens instead of 40"
        );
        assert!(run.get("samples").is_none(), "only a saved report has them");
    }
    let saved = std::fs::read_to_string(path).expect("it was saved");
    let mut saved: Value = serde_json::from_str(&saved).expect("JSON");
    for run in saved["runs"].as_array_mut().expect("runs") {
        let samples = run.as_object_mut().and_then(|run| run.remove("samples"));
        let samples = samples.expect("samples");
        let samples = samples.as_array().expect("a list");
        let tokens = samples
            .iter()
            .filter_map(|row| row["completion_tokens"].as_u64());
        assert_eq!((samples.len(), tokens.sum::<u64>()), (6, 6 * 8));
    }
    assert_eq!(saved, report);
}

#[test]
fn open_loop_against_a_running_server() {
    let server = Running::start(&HASHES);
    let url = format!("http://{}/v1", server.address);
    let load = [
        "--rate",
        "200",
        "--requests",
        "7",
        "--warmup",
        "0",
        "--api-key",
        "k",
    ];
    let args = [
        "bench",
        "serve",
        "--json",
        "--url",
        &url,
        "--workload",
        "mixed",
    ];
    let report = json(&[&args[..], &load, &["--max-tokens", "24"]].concat());
    check(&report, 1, 7);
    let run = &report["runs"][0];
    assert_eq!(run["load"], json!({"kind": "open", "rate": 200.0}));
    assert_eq!(report["server"]["in_process"], false);
    // The answers are the server's: what it counted is what the clients counted.
    assert_eq!(
        server.metric("vllm:generation_tokens_total"),
        run["tokens"]["completion"].as_f64().expect("a count")
    );
    assert!(
        run["server"]["mask_rows"]
            .as_f64()
            .is_some_and(|rows| rows > 0.0),
        "{run}"
    );
    let words = report["command_line"].to_string();
    assert!(words.contains("…") && !words.contains("\"k\""), "{words}");
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let ask = |seed: &str| {
        let load = [
            "--requests",
            "5",
            "--warmup",
            "0",
            "--concurrency",
            "5",
            "--max-tokens",
            "16",
        ];
        let bench = [
            "bench",
            "serve",
            "--json",
            "--workload",
            "chat",
            "--seed",
            seed,
        ];
        let report = json(&[&bench[..], &load, &HASHES].concat());
        check(&report, 1, 5);
        report["runs"][0]["tokens"]["prompt"].clone()
    };
    assert_eq!(ask("3"), ask("3"));
    assert_ne!(ask("3"), ask("4"));
}

#[test]
fn a_run_that_failed_says_so() {
    // No prompt of the battery fits.
    let load = ["--requests", "3", "--warmup", "0", "--concurrency", "2"];
    let args = ["bench", "serve", "--max-model-len", "8"];
    let output = run(&[&args[..], &load, &HASHES].concat());
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("3 of 3 requests failed"),
        "{}",
        stderr(&output)
    );
    let table = super::stdout(&output);
    assert!(
        table.contains("0 of 3 answered") && table.contains("400 3 ("),
        "{table}"
    );
}

#[test]
fn what_can_not_be_measured() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    drop(listener);
    let output = run(&["bench", "serve", "--url", &url]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("lockstep serve"),
        "{}",
        stderr(&output)
    );
    let output = run(&["bench", "serve", "--url", "https://127.0.0.1"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = run(&["bench", "serve", "--save", "/no/such/folder/report.json"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("--save /no/such"),
        "{}",
        stderr(&output)
    );
}
