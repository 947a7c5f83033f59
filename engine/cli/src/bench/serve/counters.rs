//! The server's own counters, before and after: what drafts came to, what masks cost, how many steps there
//! were. It must never guess: what a server does not count is left out.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Samples of a page in Prometheus' text format, by series: a name and its labels as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    values: BTreeMap<String, f64>,
}

/// What a drafter did.
#[derive(Clone, Debug, PartialEq)]
pub struct DrafterCount {
    /// Who proposed.
    pub name: String,
    /// Tokens that were proposed.
    pub proposed: f64,
    /// Of these, tokens that were accepted.
    pub accepted: f64,
    /// The share that was accepted, as the mean over requests.
    pub request_acceptance: Option<f64>,
}

impl Counters {
    /// Reads a page. Lines that are no samples are passed over.
    pub fn read(page: &str) -> Counters {
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.filter_map(|line| {
            // Labels may hold spaces; a time stamp may follow the value.
            let at = line.rfind('}').map_or(0, |at| at + 1);
            let at = at + line[at..].find(' ')?;
            let value = line[at..].split_whitespace().next()?.parse().ok()?;
            Some((line[..at].trim_end().to_owned(), value))
        });
        Counters {
            values: samples.collect(),
        }
    }

    /// What was added since `before`. A counter that fell had started over.
    pub fn since(&self, before: &Counters) -> Counters {
        let values = self.values.iter().map(|(series, after)| {
            let before = before.values.get(series).copied().unwrap_or(0.0);
            let added = if *after >= before {
                after - before
            } else {
                *after
            };
            (series.clone(), added)
        });
        Counters {
            values: values.collect(),
        }
    }

    /// A metric's sum over its labels; none if the server has no such metric.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let mut own = self
            .values
            .iter()
            .filter(|(series, _)| name_of(series) == name)
            .map(|(_, value)| *value)
            .peekable();
        own.peek()?;
        Some(own.sum())
    }

    /// Each drafter that proposed anything. A pair of counters is found by its names: `X_accepted_total`
    /// beside `X_total` or `X_proposed_total`, where X speaks of drafts; the drafter by its label, or else
    /// by X.
    pub fn drafters(&self) -> Vec<DrafterCount> {
        let mut labelled = BTreeMap::<String, (f64, f64)>::new();
        let mut named = labelled.clone();
        for (series, accepted) in &self.values {
            let name = name_of(series);
            let labels = &series[name.len()..];
            let stem = name.strip_suffix("_accepted_total");
            let Some(stem) = stem.filter(|stem| stem.contains("draft")) else {
                continue;
            };
            let proposed = ["_total", "_proposed_total"]
                .iter()
                .find_map(|end| self.values.get(&format!("{stem}{end}{labels}")));
            let Some(proposed) = proposed else { continue };
            let (rows, drafter) = match label(labels, "drafter") {
                Some(drafter) => (&mut labelled, drafter),
                None => (&mut named, drafter_of(stem)),
            };
            let row = rows.entry(drafter.to_owned()).or_default();
            *row = (row.0 + proposed, row.1 + accepted);
        }
        // Both at once would count drafts twice.
        let rows = if labelled.is_empty() { named } else { labelled };
        rows.into_iter()
            .filter(|(_, (proposed, _))| *proposed > 0.0)
            .map(|(name, (proposed, accepted))| DrafterCount {
                request_acceptance: self.request_acceptance(&name),
                name,
                proposed,
                accepted,
            })
            .collect()
    }

    fn request_acceptance(&self, drafter: &str) -> Option<f64> {
        let of_drafter = |name: &str| {
            let mut own = self.values.iter().filter(|(series, _)| {
                let own = name_of(series);
                own == name && label(&series[own.len()..], "drafter") == Some(drafter)
            });
            own.next().map(|(_, value)| *value)
        };
        let shares = of_drafter("lockstep_drafted_requests_acceptance_total")?;
        let requests = of_drafter("lockstep_drafted_requests_total")?;
        (requests > 0.0).then(|| shares / requests)
    }

    /// What a report says of the server.
    pub fn report(&self) -> Value {
        let mut report = Map::new();
        let steps = self.sum("vllm:iteration_tokens_total_count");
        let per_step = |value: f64| {
            steps
                .filter(|steps| *steps > 0.0)
                .map(|steps| value / steps)
        };
        report.insert("steps".to_owned(), json!(steps));
        let generated = self.sum("vllm:generation_tokens_total");
        let tokens_per_step = generated.and_then(per_step);
        report.insert("tokens_per_step".to_owned(), json!(tokens_per_step));
        let drafters = self.drafters().into_iter().map(|drafter| {
            json!({
                "drafter": drafter.name,
                "proposed": drafter.proposed,
                "accepted": drafter.accepted,
                "acceptance": drafter.accepted / drafter.proposed,
                "request_weighted_acceptance": drafter.request_acceptance,
                "accepted_per_step": per_step(drafter.accepted),
            })
        });
        report.insert("drafters".to_owned(), drafters.collect());
        for (field, name) in [
            ("mask_fill_seconds", "lockstep_mask_fill_seconds_sum"),
            ("mask_wait_seconds", "lockstep_mask_wait_seconds_sum"),
            ("masked_steps", "lockstep_mask_fill_seconds_count"),
            ("mask_rows", "lockstep_mask_rows_total"),
            ("preemptions", "vllm:num_preemptions_total"),
            ("prefix_cache_queries", "vllm:prefix_cache_queries_total"),
            ("prefix_cache_hits", "vllm:prefix_cache_hits_total"),
        ] {
            report.insert(field.to_owned(), json!(self.sum(name)));
        }
        Value::Object(report)
    }
}

fn name_of(series: &str) -> &str {
    series.split('{').next().unwrap_or("")
}

/// What a metric calls a drafter: `forced` of `lockstep_forced_drafts`.
fn drafter_of(stem: &str) -> &str {
    let own = stem.strip_prefix("lockstep_").unwrap_or(stem);
    let own = own.split("draft").next().unwrap_or("");
    match own.trim_end_matches('_') {
        "" => "all",
        name => name,
    }
}

/// A label's value, as it is written.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let inner = labels.strip_prefix('{')?;
    let start = format!("{name}=\"");
    let (before, rest) = inner.split_once(start.as_str())?;
    let begins = before.is_empty() || before.ends_with(',');
    rest.split('"').next().filter(|_| begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# HELP lockstep_forced_drafts_total Drafts proposed.
# TYPE lockstep_forced_drafts_total counter
lockstep_forced_drafts_total{model_name=\"a b\"} 10
lockstep_forced_drafts_accepted_total{model_name=\"a b\"} 4
vllm:generation_tokens_total{model_name=\"a b\"} 100
vllm:iteration_tokens_total_count{model_name=\"a b\"} 50
lockstep_mask_fill_seconds_sum{model_name=\"a b\"} 0.5
";
    const AFTER: &str = "\
lockstep_forced_drafts_total{model_name=\"a b\"} 30
lockstep_forced_drafts_accepted_total{model_name=\"a b\"} 19
vllm:generation_tokens_total{model_name=\"a b\"} 220 1700000000000
vllm:iteration_tokens_total_count{model_name=\"a b\"} 110
lockstep_mask_fill_seconds_sum{model_name=\"a b\"} 0.75
";

    fn drafter(name: &str, proposed: f64, accepted: f64) -> DrafterCount {
        DrafterCount {
            name: name.to_owned(),
            proposed,
            accepted,
            request_acceptance: None,
        }
    }

    #[test]
    fn what_was_added() {
        let added = Counters::read(AFTER).since(&Counters::read(BEFORE));
        assert_eq!(added.drafters(), [drafter("forced", 20.0, 15.0)]);
        let report = added.report();
        assert_eq!(report["steps"], 60.0);
        assert_eq!(report["tokens_per_step"], 2.0);
        assert_eq!(report["drafters"][0]["acceptance"], 0.75);
        assert_eq!(report["drafters"][0]["accepted_per_step"], 0.25);
        assert_eq!(report["mask_fill_seconds"], 0.25);
        // What is not counted is not zero.
        assert_eq!(report["preemptions"], Value::Null);
    }

    #[test]
    fn a_server_that_started_over() {
        let fallen = Counters::read(BEFORE).since(&Counters::read(AFTER));
        assert_eq!(fallen.sum("vllm:generation_tokens_total"), Some(100.0));
    }

    #[test]
    fn drafters_by_label_and_by_name() {
        let page = "\
lockstep_drafts_total{drafter=\"ngram\",model_name=\"m\"} 8
lockstep_drafts_accepted_total{drafter=\"ngram\",model_name=\"m\"} 2
lockstep_drafts_total{model_name=\"m\",drafter=\"forced\"} 5
lockstep_drafts_accepted_total{model_name=\"m\",drafter=\"forced\"} 5
lockstep_drafted_requests_total{drafter=\"ngram\",model_name=\"m\"} 2
lockstep_drafted_requests_acceptance_total{drafter=\"ngram\",model_name=\"m\"} 0.75
lockstep_drafts_total{drafter=\"suffix\",model_name=\"m\"} 0
lockstep_drafts_accepted_total{drafter=\"suffix\",model_name=\"m\"} 0
lockstep_forced_drafts_total{model_name=\"m\"} 5
lockstep_forced_drafts_accepted_total{model_name=\"m\"} 5
";
        let mut both = [drafter("forced", 5.0, 5.0), drafter("ngram", 8.0, 2.0)];
        both[1].request_acceptance = Some(0.375);
        assert_eq!(Counters::read(page).drafters(), both);
        let plain = "draft_tokens_proposed_total 4\ndraft_tokens_accepted_total 1\n";
        assert_eq!(Counters::read(plain).drafters(), [drafter("all", 4.0, 1.0)]);
        let half = "lockstep_x_drafts_accepted_total 1\nother_accepted_total 1\nother_total 2\n";
        assert_eq!(Counters::read(half).drafters(), []);
    }

    #[test]
    fn lines_that_are_no_samples() {
        let page = "# c\n\nname\nname{a=\"}\"} x\nname{a=\"} 9\"} 2\n";
        let counters = Counters::read(page);
        assert_eq!(counters.values.len(), 1);
        assert_eq!(counters.sum("name"), Some(2.0));
    }
}
