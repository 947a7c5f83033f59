//! What a load came to, as JSON: rates, percentiles, errors, and what the server counted. It must never
//! state a figure of nothing: what was not measured is null.

use super::load::Run;
use super::stream::Answer;
use crate::statistics::{mean, quantile, weighted_mean};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The report of a run. Times are in milliseconds, rates per second.
pub fn of_run(run: &Run) -> Value {
    let answers: Vec<&Answer> = run
        .outcomes
        .iter()
        .filter_map(|outcome| outcome.result.as_ref().ok())
        .collect();
    let failed = run.outcomes.len() - answers.len();
    let sum = |count: fn(&Answer) -> u64| answers.iter().map(|answer| count(answer)).sum::<u64>();
    let completion = sum(|answer| answer.completion_tokens);
    let num_deltas = sum(|answer| answer.deltas.len() as u64);
    let mut finish_reasons = BTreeMap::<&str, u64>::new();
    for answer in &answers {
        *finish_reasons.entry(&answer.finish).or_default() += 1;
    }
    let speeds: Vec<(f64, f64)> = answers
        .iter()
        .map(|answer| (answer.speed(), answer.completion_tokens as f64))
        .collect();
    let late: Vec<f64> = run.outcomes.iter().map(|outcome| outcome.late).collect();
    json!({
        "requests": {"sent": run.outcomes.len(), "succeeded": answers.len(), "failed": failed},
        "errors": errors(run),
        "finish_reasons": finish_reasons,
        "seconds": run.seconds,
        "requests_per_second": answers.len() as f64 / run.seconds,
        "tokens_per_second": completion as f64 / run.seconds,
        "request_tokens_per_second": {
            "request_weighted": (!speeds.is_empty())
                .then(|| mean(&speeds.iter().map(|(speed, _)| *speed).collect::<Vec<f64>>())),
            "token_weighted": weighted_mean(&speeds),
        },
        "tokens": {
            "prompt": sum(|answer| answer.prompt_tokens),
            "cached_prompt": sum(|answer| answer.cached_tokens),
            "completion": completion,
        },
        "tokens_per_delta": (num_deltas > 0).then(|| completion as f64 / num_deltas as f64),
        "without_deltas": answers.iter().filter(|answer| answer.deltas.is_empty()).count(),
        "ttft_ms": spread(answers.iter().filter_map(|answer| answer.first())),
        "itl_ms": spread(answers.iter().flat_map(|answer| answer.gaps())),
        "per_token_ms": spread(answers.iter().filter_map(|answer| answer.per_token())),
        "e2e_ms": spread(answers.iter().map(|answer| answer.end)),
        "late_ms": spread(late.into_iter()),
    })
}

/// How seconds are spread, in milliseconds.
fn spread(seconds: impl Iterator<Item = f64>) -> Value {
    let values: Vec<f64> = seconds.map(|seconds| seconds * 1e3).collect();
    if values.is_empty() {
        return Value::Null;
    }
    json!({
        "count": values.len(),
        "mean": mean(&values),
        "p50": quantile(&values, 0.5),
        "p90": quantile(&values, 0.9),
        "p99": quantile(&values, 0.99),
        "max": quantile(&values, 1.0),
    })
}

/// Failures by code: how many, and the words of the first.
fn errors(run: &Run) -> Value {
    let mut by_code = BTreeMap::<&str, (u64, &str)>::new();
    for outcome in &run.outcomes {
        if let Err(fault) = &outcome.result {
            by_code.entry(&fault.code).or_insert((0, &fault.message)).0 += 1;
        }
    }
    by_code
        .into_iter()
        .map(|(code, (count, first))| (code.to_owned(), json!({"count": count, "first": first})))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// Every request of a run, for figures that the report has not. Times are in milliseconds.
pub fn samples(run: &Run) -> Value {
    let rows = run.outcomes.iter().map(|outcome| match &outcome.result {
        Ok(answer) => json!({
            "request": outcome.idx,
            "start_ms": outcome.start * 1e3,
            "ttft_ms": answer.first().map(|first| first * 1e3),
            "e2e_ms": answer.end * 1e3,
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.completion_tokens,
            "deltas": answer.deltas.len(),
            "finish_reason": answer.finish,
        }),
        Err(fault) => json!({
            "request": outcome.idx,
            "start_ms": outcome.start * 1e3,
            "error": fault.code,
        }),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bench::serve::load::Outcome, client::endpoint::Fault};

    fn outcome(idx: u64, result: Result<Answer, Fault>) -> Outcome {
        Outcome {
            idx,
            start: 0.5,
            late: 0.001,
            result,
        }
    }

    fn answer(deltas: &[f64], completion_tokens: u64) -> Answer {
        Answer {
            deltas: deltas.to_vec(),
            end: 4.0,
            finish: "stop".to_owned(),
            prompt_tokens: 10,
            cached_tokens: 4,
            completion_tokens,
        }
    }

    #[test]
    fn figures_of_a_run() {
        let run = Run {
            outcomes: vec![
                outcome(0, Ok(answer(&[1.0, 2.0, 2.5], 4))),
                outcome(1, Ok(answer(&[3.0], 12))),
                outcome(2, Err(Fault::new(429, "first"))),
                outcome(3, Err(Fault::new(429, "second"))),
                outcome(4, Ok(answer(&[], 1))),
            ],
            seconds: 8.0,
        };
        let report = of_run(&run);
        assert_eq!(
            report["requests"],
            json!({"sent": 5, "succeeded": 3, "failed": 2})
        );
        assert_eq!(
            report["errors"],
            json!({"429": {"count": 2, "first": "first"}})
        );
        assert_eq!(report["finish_reasons"], json!({"stop": 3}));
        let tokens = json!({"prompt": 30, "cached_prompt": 12, "completion": 17});
        assert_eq!(report["tokens"], tokens);
        assert_eq!(report["tokens_per_second"], 17.0 / 8.0);
        assert_eq!(report["requests_per_second"], 3.0 / 8.0);
        let speeds = &report["request_tokens_per_second"];
        // 1, 3 and 0.25 tokens per second, of 4, 12 and 1 tokens.
        assert_eq!(speeds["request_weighted"], (1.0 + 3.0 + 0.25) / 3.0);
        assert_eq!(speeds["token_weighted"], (4.0 + 36.0 + 0.25) / 17.0);
        assert_eq!(report["tokens_per_delta"], 17.0 / 4.0);
        assert_eq!(report["without_deltas"], 1);
        let ttft = &report["ttft_ms"];
        assert_eq!(
            (&ttft["count"], &ttft["p50"], &ttft["p99"]),
            (&json!(2), &json!(1e3), &json!(3e3))
        );
        assert_eq!(
            (&report["itl_ms"]["count"], &report["itl_ms"]["mean"]),
            (&json!(2), &json!(750.0))
        );
        assert_eq!(report["per_token_ms"]["max"], 500.0);
        assert_eq!(report["e2e_ms"]["p50"], 4000.0);
        assert_eq!(report["late_ms"]["count"], 5);
        let samples = samples(&run);
        assert_eq!(samples.as_array().map(Vec::len), Some(5));
        assert_eq!(
            (&samples[1]["ttft_ms"], &samples[3]["error"]),
            (&json!(3e3), &json!("429"))
        );
    }

    #[test]
    fn nothing_is_null_and_not_zero() {
        let run = Run {
            outcomes: vec![outcome(0, Err(Fault::new("connect", "refused")))],
            seconds: 1.0,
        };
        let report = of_run(&run);
        assert_eq!(report["ttft_ms"], Value::Null);
        assert_eq!(report["e2e_ms"], Value::Null);
        assert_eq!(
            report["request_tokens_per_second"]["token_weighted"],
            Value::Null
        );
        assert_eq!(report["requests"]["failed"], 1);
    }
}
