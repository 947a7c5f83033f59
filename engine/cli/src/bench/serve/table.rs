//! The report for people. It must never state what the JSON does not.

use crate::terminal::Paint;
use serde_json::Value;

/// Writes a whole report.
pub fn print(report: &Value) {
    let paint = Paint::stdout();
    let settings = &report["settings"];
    println!("{}", paint.bold(text(&report["server"]["about"])));
    println!(
        "{}: {} requests after {} to warm up, seed {}, at most {} tokens each",
        text(&settings["workload"]),
        settings["requests"],
        settings["warmup"],
        settings["seed"],
        settings["max_tokens"],
    );
    for run in report["runs"].as_array().into_iter().flatten() {
        println!();
        for line in of_run(run, paint) {
            println!("{line}");
        }
    }
}

fn of_run(run: &Value, paint: Paint) -> Vec<String> {
    let requests = &run["requests"];
    let load = load(&run["load"]);
    let answered = format!(
        "{} of {} answered in {} s",
        requests["succeeded"],
        requests["sent"],
        figure(&run["seconds"], 2)
    );
    let verdict = match run["contention"].as_str() {
        Some("CLEAN") => paint.green("CLEAN"),
        Some(other) => paint.yellow(other),
        None => String::new(),
    };
    let speeds = &run["request_tokens_per_second"];
    let tokens = &run["tokens"];
    let mut lines = vec![
        format!("{}   {answered}   {verdict}", paint.bold(&load))
            .trim_end()
            .to_owned(),
        format!(
            "  {:<10}{} tokens/s, {} requests/s; one request {} tokens/s by requests, {} by tokens",
            "speed",
            figure(&run["tokens_per_second"], 1),
            figure(&run["requests_per_second"], 2),
            figure(&speeds["request_weighted"], 1),
            figure(&speeds["token_weighted"], 1),
        ),
        format!(
            "  {:<10}{} read, {} of them cached; {} written, {} a delta",
            "tokens",
            tokens["prompt"],
            tokens["cached_prompt"],
            tokens["completion"],
            figure(&run["tokens_per_delta"], 2),
        ),
    ];
    let heads = ["p50", "p90", "p99", "max", "mean"];
    let heads: String = heads.iter().map(|head| format!("{head:>11}")).collect();
    lines.push(paint.dim(&format!("  {:<10}{heads}", "ms")));
    for (name, field) in [
        ("TTFT", "ttft_ms"),
        ("ITL", "itl_ms"),
        ("per token", "per_token_ms"),
        ("E2E", "e2e_ms"),
    ] {
        lines.push(spread(name, &run[field]));
    }
    // Half a millisecond is what a busy machine does; more is a generator that can't keep up.
    if run["late_ms"]["p99"]
        .as_f64()
        .is_some_and(|late| late > 0.5)
    {
        lines.push(paint.yellow(&spread("sent late", &run["late_ms"])));
    }
    let ends = counts(&run["finish_reasons"], |count| count.to_string());
    lines.push(format!("  {:<10}{ends}", "ended by"));
    lines.extend(of_server(&run["server"]));
    if requests["failed"] != 0 {
        let errors = counts(&run["errors"], |error| {
            format!("{} ({})", error["count"], text(&error["first"]))
        });
        lines.push(paint.red(&format!("  {:<10}{errors}", "failed")));
    }
    lines
}

fn load(load: &Value) -> String {
    match load["concurrency"].as_u64() {
        Some(concurrency) => format!("{concurrency} at a time"),
        None => format!("{} a second", load["rate"].as_f64().unwrap_or(f64::NAN)),
    }
}

fn percent(share: &Value) -> String {
    let share = share.as_f64();
    share.map_or("-".to_owned(), |share| format!("{:.1}", share * 100.0))
}

/// What the server counted, if it could be asked.
fn of_server(server: &Value) -> Vec<String> {
    if server.is_null() {
        return Vec::new();
    }
    let drafters = server["drafters"].as_array().into_iter().flatten();
    let mut lines: Vec<String> = drafters
        .map(|drafter| {
            format!(
                "  {:<10}{} of {} drafts accepted, {} % by tokens, {} % by requests; {} a step",
                text(&drafter["drafter"]),
                figure(&drafter["accepted"], 0),
                figure(&drafter["proposed"], 0),
                percent(&drafter["acceptance"]),
                percent(&drafter["request_weighted_acceptance"]),
                figure(&drafter["accepted_per_step"], 2),
            )
        })
        .collect();
    lines.push(format!(
        "  {:<10}{} steps, {} tokens each; {} preemptions",
        "server",
        figure(&server["steps"], 0),
        figure(&server["tokens_per_step"], 2),
        figure(&server["preemptions"], 0),
    ));
    if server["masked_steps"].as_f64().is_some_and(|num| num > 0.0) {
        lines.push(format!(
            "  {:<10}{} rows in {} steps, filled in {} s, waited for {} s",
            "masks",
            figure(&server["mask_rows"], 0),
            figure(&server["masked_steps"], 0),
            figure(&server["mask_fill_seconds"], 3),
            figure(&server["mask_wait_seconds"], 3),
        ));
    }
    lines
}

fn spread(name: &str, spread: &Value) -> String {
    let figures = ["p50", "p90", "p99", "max", "mean"]
        .iter()
        .map(|field| format!("{:>11}", figure(&spread[*field], 2)));
    format!("  {name:<10}{}", figures.collect::<String>())
}

fn counts(map: &Value, count: impl Fn(&Value) -> String) -> String {
    let parts: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name} {}", count(value)))
        .collect();
    parts.join(", ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// A number, or a dash where nothing was measured.
fn figure(value: &Value, decimals: usize) -> String {
    value
        .as_f64()
        .map_or("-".to_owned(), |number| format!("{number:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::serve::{load::Outcome, load::Run, report},
        client::endpoint::Fault,
    };
    use serde_json::json;

    #[test]
    fn a_run_without_any_answer_is_dashes_and_errors() {
        let run = Run {
            outcomes: vec![Outcome {
                idx: 0,
                start: 0.0,
                late: 0.0,
                result: Err(Fault::new(429, "too much waits")),
            }],
            seconds: 1.0,
        };
        let mut report = report::of_run(&run);
        report["load"] = json!({"kind": "open", "rate": 2.5});
        let lines = of_run(&report, Paint::stdout()).join("\n");
        assert!(lines.contains("2.5 a second   0 of 1 answered"), "{lines}");
        assert!(lines.contains("429 1 (too much waits)"), "{lines}");
        let ttft = lines
            .lines()
            .find(|line| line.contains("TTFT"))
            .expect("a line");
        assert_eq!(ttft.matches('-').count(), 5, "{ttft}");
    }

    #[test]
    fn what_the_server_counted() {
        let server = json!({
            "steps": 60.0, "tokens_per_step": 2.0, "preemptions": null,
            "drafters": [{"drafter": "forced", "proposed": 20.0, "accepted": 15.0,
                          "acceptance": 0.75, "request_weighted_acceptance": 0.5,
                          "accepted_per_step": 0.25}],
        });
        let lines = of_server(&server);
        assert_eq!(
            lines[0],
            "  forced    15 of 20 drafts accepted, 75.0 % by tokens, 50.0 % by requests; 0.25 a step"
        );
        assert_eq!(
            lines[1],
            "  server    60 steps, 2.00 tokens each; - preemptions"
        );
        assert_eq!(of_server(&Value::Null), Vec::<String>::new());
    }
}
