//! The report for people. It must never state what the JSON does not.

use crate::terminal::Paint;
use serde_json::Value;

/// Writes a whole report.
pub fn print(report: &Value) {
    let paint = Paint::stdout();
    let (settings, machine) = (&report["settings"], &report["machine"]);
    let verdict = match report["contention"].as_str() {
        Some("CLEAN") => paint.green("CLEAN"),
        other => paint.yellow(other.unwrap_or("UNKNOWN")),
    };
    println!(
        "{}  {}, {} processors  {verdict}",
        paint.bold("a stub for a model"),
        machine["processor"].as_str().unwrap_or("unknown processor"),
        machine["num_processors"],
    );
    println!(
        "prompts of {} to {} tokens, best of {} rounds of {} steps; microseconds per step",
        settings["prompt_tokens"][0],
        settings["prompt_tokens"][1],
        settings["rounds"],
        settings["steps"],
    );
    for variant in report["variants"].as_array().into_iter().flatten() {
        println!();
        for line in of_variant(variant, paint) {
            println!("{line}");
        }
    }
}

fn of_variant(variant: &Value, paint: Paint) -> Vec<String> {
    let text = |name: &str| variant[name].as_str().unwrap_or_default().to_owned();
    let heading = format!(
        "{}, drafts {}, prefix cache {}, overlap {}",
        text("model"),
        text("drafts"),
        text("prefix_cache"),
        text("overlap"),
    );
    let heads = format!(
        "{:>6} {:>21} {:>21} {:>21} {:>7} {:>8} {:>7} {:>7}",
        "", "plan p50, mean, p99", "commit", "both", "poll", "ns each", "drafts", "tokens"
    );
    let mut lines = vec![paint.bold(&heading), paint.dim(&heads)];
    for row in variant["rows"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{:>6.0} {} {} {} {} {:>8.0} {:>7.2} {:>7.2}",
            number(&row["seqs"]),
            spread(&row["plan_us"]),
            spread(&row["commit_us"]),
            spread(&row["step_us"]),
            figure(&row["poll_us"]["p50"]),
            number(&row["ns_per_seq"]),
            number(&row["drafts_per_seq"]),
            number(&row["tokens_per_seq"]),
        ));
    }
    if let Some(linearity) = variant["linearity"].as_f64() {
        lines.push(format!(
            "a sequence among the most costs {linearity:.2} times what it costs among the fewest"
        ));
    }
    lines
}

fn spread(times: &Value) -> String {
    let columns = ["p50", "mean", "p99"].map(|name| figure(&times[name]));
    columns.concat()
}

fn figure(value: &Value) -> String {
    format!("{:>7.1}", number(value))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}
