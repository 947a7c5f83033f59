//! What the server counts, as Prometheus text: the `vllm:` names and buckets that gateways and
//! dashboards read, and `lockstep_` names for what is ours.
//!
//! Counting must never change an answer, nor keep any word of one.

mod families;

use families::{FAMILIES, Kind};
use lockstep_core::{DraftSource, EventKind, Finish, Finished, Request, Stats, Time};
use lockstep_grammar::CacheStats;
use lockstep_step::{BLOCK_LEN, BackendLimits};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// When what happened to one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeqTimes {
    arrived: Time,
    scheduled: Option<Time>,
    first: Option<Time>,
    last: Option<Time>,
    prompt_tokens: u32,
    max_tokens: u32,
}

impl SeqTimes {
    pub(crate) fn new(arrived: Time, request: &Request) -> SeqTimes {
        SeqTimes {
            arrived,
            scheduled: None,
            first: None,
            last: None,
            prompt_tokens: u32::try_from(request.prompt.len()).unwrap_or(u32::MAX),
            max_tokens: request.max_tokens,
        }
    }
}

#[derive(Default)]
struct Histogram {
    buckets: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn observe(&mut self, value: f64) {
        // Each count is of its own bucket; they are summed up when written.
        let bucket = self.buckets.iter().position(|bound| value <= *bound);
        if let Some(count) = bucket.and_then(|idx| self.counts.get_mut(idx)) {
            *count += 1;
        }
        self.sum += value;
        self.count += 1;
    }
}

#[derive(Default)]
struct Values {
    // By family, then by labels in their written form.
    numbers: BTreeMap<&'static str, BTreeMap<String, f64>>,
    histograms: BTreeMap<&'static str, Histogram>,
}

/// All counters of a server.
pub(crate) struct Metrics {
    labels: String,
    values: Mutex<Values>,
}

impl Metrics {
    pub(crate) fn new(model_name: &str, limits: &BackendLimits) -> Metrics {
        let name = model_name
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let mut values = Values::default();
        for (family, kind, _) in FAMILIES {
            let buckets = match kind {
                Kind::Gauge | Kind::Counter => continue,
                Kind::Histogram(buckets) => buckets.to_vec(),
                Kind::Tokens => one_two_five(limits.seq_len_max),
            };
            let counts = vec![0; buckets.len()];
            let histogram = Histogram {
                buckets,
                counts,
                ..Histogram::default()
            };
            values.histograms.insert(family, histogram);
        }
        let metrics = Metrics {
            labels: format!("model_name=\"{name}\",engine=\"0\""),
            values: Mutex::new(values),
        };
        let config = format!(
            "block_size=\"{BLOCK_LEN}\",num_gpu_blocks=\"{}\",cache_dtype=\"auto\"",
            limits.num_blocks
        );
        metrics.set("vllm:cache_config_info", &config, 1.0);
        for family in [
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "lockstep_grammar_cache_entries",
        ] {
            metrics.set(family, "", 0.0);
        }
        for (family, kind, _) in FAMILIES {
            let labelled = ["by reason", "by kind", "by error code", "by route"];
            let help = FAMILIES.iter().find(|f| f.0 == *family).map_or("", |f| f.2);
            if *kind == Kind::Counter && !labelled.iter().any(|label| help.contains(label)) {
                metrics.count(family, "", 0);
            }
        }
        for reason in ["stop", "length", "abort", "error"] {
            let labels = format!("finished_reason=\"{reason}\"");
            metrics.count("vllm:request_success_total", &labels, 0);
        }
        metrics
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        // Numbers stay whole even if some counting thread died.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to a counter.
    pub(crate) fn count(&self, family: &'static str, labels: &str, more: u64) {
        let mut values = self.values();
        let numbers = values.numbers.entry(family).or_default();
        match numbers.get_mut(labels) {
            Some(number) => *number += more as f64,
            None => drop(numbers.insert(labels.to_string(), more as f64)),
        }
    }

    /// Sets a gauge, or a counter whose total is kept elsewhere.
    pub(crate) fn set(&self, family: &'static str, labels: &str, value: f64) {
        let mut values = self.values();
        let numbers = values.numbers.entry(family).or_default();
        numbers.insert(labels.to_string(), value);
    }

    /// Adds to a histogram.
    pub(crate) fn observe(&self, family: &'static str, value: f64) {
        if let Some(histogram) = self.values().histograms.get_mut(family) {
            histogram.observe(value);
        }
    }

    /// A request was taken.
    pub(crate) fn request(&self, num_choices: usize) {
        self.observe("vllm:request_params_n", num_choices as f64);
    }

    /// A step starts.
    pub(crate) fn step(&self, num_query_tokens: usize) {
        self.observe("vllm:iteration_tokens_total", num_query_tokens as f64);
    }

    /// The masks of a step were filled, with so much work and, after the forward pass, so much waiting.
    pub(crate) fn masks(&self, busy_us: u64, wait_us: u64) {
        self.observe("lockstep_mask_fill_seconds", busy_us as f64 / 1e6);
        self.observe("lockstep_mask_wait_seconds", wait_us as f64 / 1e6);
    }

    /// A grammar was made, or found.
    pub(crate) fn grammar(&self, seconds: f64, cache: &CacheStats) {
        self.observe("lockstep_grammar_compile_seconds", seconds);
        for (family, number) in [
            ("lockstep_grammar_cache_hits_total", cache.hits),
            ("lockstep_grammar_cache_misses_total", cache.misses),
            ("lockstep_grammar_cache_evictions_total", cache.evictions),
            ("lockstep_grammar_cache_entries", cache.entries as u64),
        ] {
            self.set(family, "", number as f64);
        }
    }

    /// A sequence ended, by one of stop, length, abort and error.
    pub(crate) fn finished(&self, reason: &str) {
        let labels = format!("finished_reason=\"{reason}\"");
        self.count("vllm:request_success_total", &labels, 1);
    }

    /// The engine's own numbers.
    pub(crate) fn stats(&self, stats: &Stats) {
        let used = stats.num_blocks.saturating_sub(stats.num_blocks_free);
        let usage = used as f64 / stats.num_blocks.max(1) as f64;
        self.set("vllm:num_requests_running", "", stats.num_running as f64);
        self.set("vllm:num_requests_waiting", "", stats.num_waiting as f64);
        self.set("vllm:kv_cache_usage_perc", "", usage);
        self.set("vllm:gpu_cache_usage_perc", "", usage);
        let totals = &stats.totals;
        for (family, total) in [
            (
                "vllm:prefix_cache_queries_total",
                totals.num_looked_up_tokens,
            ),
            ("vllm:prefix_cache_hits_total", totals.num_cached_tokens),
            (
                "lockstep_prefix_cache_evicted_blocks_total",
                totals.num_evicted_blocks,
            ),
            (
                "lockstep_prefix_cache_evicted_rows_total",
                totals.num_evicted_rows,
            ),
            (
                "lockstep_prefix_cache_blocks",
                stats.num_blocks_cached as u64,
            ),
            ("lockstep_mask_rows_total", totals.num_mask_rows),
            (
                "lockstep_mask_rows_left_out_total",
                totals.num_mask_rows_left_out,
            ),
            (
                "lockstep_matcher_rollback_tokens_total",
                totals.num_rolled_back,
            ),
            // What was computed for a reader that had left counts as well.
            ("vllm:generation_tokens_total", totals.num_output_tokens),
            ("vllm:num_preemptions_total", totals.num_preemptions),
            ("lockstep_steps_total", totals.num_steps),
            (
                "lockstep_steps_overlapped_total",
                totals.num_steps_overlapped,
            ),
            ("lockstep_void_parts_total", totals.num_void_parts),
            ("vllm:spec_decode_num_draft_tokens_total", totals.num_drafts),
            (
                "vllm:spec_decode_num_accepted_tokens_total",
                totals.num_drafts_accepted,
            ),
        ] {
            self.set(family, "", total as f64);
        }
        for source in DraftSource::ALL {
            let labels = format!("drafter=\"{}\"", source.as_str());
            let (proposed, accepted) = (
                totals.drafts.proposed(source),
                totals.drafts.accepted(source),
            );
            self.set("lockstep_drafts_total", &labels, proposed as f64);
            self.set("lockstep_drafts_accepted_total", &labels, accepted as f64);
            let (requests, shares) = (totals.drafts.requests(source), totals.drafts.shares(source));
            self.set("lockstep_drafted_requests_total", &labels, requests as f64);
            self.set(
                "lockstep_drafted_requests_acceptance_total",
                &labels,
                shares,
            );
        }
    }

    /// Something happened to a sequence.
    pub(crate) fn event(&self, now: Time, _at: u32, kind: &EventKind, times: &mut SeqTimes) {
        let seconds = |since: Time| now.since(since) as f64 / 1e6;
        match kind {
            EventKind::Scheduled => {
                times.scheduled = Some(now);
                let prompt = u64::from(times.prompt_tokens);
                self.observe("vllm:request_queue_time_seconds", seconds(times.arrived));
                self.count("vllm:prompt_tokens_total", "", prompt);
            }
            EventKind::Token { .. } => {
                if let Some(last) = times.last {
                    self.observe("vllm:inter_token_latency_seconds", seconds(last));
                    self.observe("vllm:time_per_output_token_seconds", seconds(last));
                } else {
                    times.first = Some(now);
                    let scheduled = times.scheduled.unwrap_or(times.arrived);
                    self.observe("vllm:time_to_first_token_seconds", seconds(times.arrived));
                    self.observe("vllm:request_prefill_time_seconds", seconds(scheduled));
                }
                times.last = Some(now);
            }
            EventKind::DroppedSpecial { .. } => {
                self.count("lockstep_dropped_special_tokens_total", "", 1);
            }
            EventKind::Finished(finished) => self.end(now, finished, times),
            EventKind::Preempted
            | EventKind::Reasoning(_)
            | EventKind::Content(_)
            | EventKind::CallBegin { .. }
            | EventKind::CallArguments { .. }
            | EventKind::CallEnd { .. } => {}
        }
    }

    /// A sequence ended.
    fn end(&self, now: Time, finished: &Finished, times: &SeqTimes) {
        let seconds = |since: Time| now.since(since) as f64 / 1e6;
        let usage = &finished.usage;
        self.observe("vllm:e2e_request_latency_seconds", seconds(times.arrived));
        if let Some(scheduled) = times.scheduled {
            self.observe("vllm:request_inference_time_seconds", seconds(scheduled));
        }
        if let Some(first) = times.first {
            self.observe("vllm:request_decode_time_seconds", seconds(first));
            let rest = usage.completion_tokens.saturating_sub(1).max(1);
            self.observe(
                "vllm:request_time_per_output_token_seconds",
                seconds(first) / f64::from(rest),
            );
        }
        let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
        for (family, tokens) in [
            ("vllm:request_prompt_tokens", usage.prompt_tokens),
            ("vllm:request_generation_tokens", usage.completion_tokens),
            ("vllm:request_prefill_kv_computed_tokens", computed),
            ("vllm:request_params_max_tokens", times.max_tokens),
            ("vllm:request_max_num_generation_tokens", times.max_tokens),
        ] {
            self.observe(family, f64::from(tokens));
        }
        if finished.dropped_call.is_some() {
            self.count("lockstep_dropped_calls_total", "", 1);
        }
        self.finished(match &finished.finish {
            Finish::EndToken(_) | Finish::StopString(_) | Finish::ToolCalls => "stop",
            Finish::Length => "length",
            Finish::Aborted => "abort",
            Finish::Error(error) => {
                let labels = format!("kind=\"{}\"", error.kind());
                self.count("lockstep_request_errors_total", &labels, 1);
                "error"
            }
        });
    }

    /// The page, without `vllm:engine_healthy`'s own value, which the caller knows.
    pub(crate) fn render_with(&self, healthy: bool) -> String {
        self.set("vllm:engine_healthy", "", f64::from(u8::from(healthy)));
        self.render()
    }

    pub(crate) fn render(&self) -> String {
        let values = self.values();
        let mut page = String::new();
        for (family, kind, help) in FAMILIES {
            let kind = match kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::Histogram(_) | Kind::Tokens => "histogram",
            };
            let _ = writeln!(page, "# HELP {family} {help}\n# TYPE {family} {kind}");
            for (labels, value) in values.numbers.get(family).into_iter().flatten() {
                let comma = if labels.is_empty() { "" } else { "," };
                let all = &self.labels;
                let _ = writeln!(page, "{family}{{{all}{comma}{labels}}} {value}");
            }
            if let Some(histogram) = values.histograms.get(family) {
                self.write_histogram(&mut page, family, histogram);
            }
        }
        // Both spellings of these are read out there.
        for (name, family) in [
            (
                "vllm:prefix_cache_queries",
                "vllm:prefix_cache_queries_total",
            ),
            ("vllm:prefix_cache_hits", "vllm:prefix_cache_hits_total"),
            (
                "vllm:gpu_prefix_cache_queries_total",
                "vllm:prefix_cache_queries_total",
            ),
            (
                "vllm:gpu_prefix_cache_hits_total",
                "vllm:prefix_cache_hits_total",
            ),
        ] {
            let value = values
                .numbers
                .get(family)
                .and_then(|numbers| numbers.get(""));
            let (labels, value) = (&self.labels, value.copied().unwrap_or(0.0));
            let _ = writeln!(page, "# TYPE {name} counter\n{name}{{{labels}}} {value}");
        }
        page
    }

    fn write_histogram(&self, page: &mut String, family: &str, histogram: &Histogram) {
        let labels = &self.labels;
        let mut below = 0;
        for (bound, count) in histogram.buckets.iter().zip(&histogram.counts) {
            below += count;
            // Prometheus' own clients write whole bounds as `1.0`.
            let _ = writeln!(page, "{family}_bucket{{{labels},le=\"{bound:?}\"}} {below}");
        }
        let (sum, count) = (histogram.sum, histogram.count);
        let _ = writeln!(page, "{family}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(page, "{family}_sum{{{labels}}} {sum}");
        let _ = writeln!(page, "{family}_count{{{labels}}} {count}");
    }
}

/// 1, 2, 5, 10, 20, 50, ... up to `max`.
fn one_two_five(max: u32) -> Vec<f64> {
    let mut bounds = Vec::new();
    let mut power = 1_u64;
    while power <= u64::from(max) {
        let steps = [1, 2, 5].map(|step| step * power);
        bounds.extend(
            steps
                .iter()
                .filter(|b| **b <= u64::from(max))
                .map(|b| *b as f64),
        );
        power *= 10;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        let limits = BackendLimits {
            vocab_size: 10,
            num_blocks: 8,
            num_rows: 0,
            seq_len_max: 100,
            query_tokens_max: 64,
        };
        Metrics::new("a \"b\"", &limits)
    }

    #[test]
    fn buckets_follow_the_longest_sequence() {
        assert_eq!(one_two_five(60), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn a_histogram_counts_cumulatively_and_labels_are_escaped() {
        let metrics = metrics();
        metrics.observe("vllm:request_params_n", 1.0);
        metrics.observe("vllm:request_params_n", 3.0);
        metrics.observe("vllm:request_params_n", 99.0);
        let page = metrics.render();
        let lines = page
            .lines()
            .filter(|line| line.starts_with("vllm:request_params_n"));
        let labels = r#"model_name="a \"b\"",engine="0""#;
        let expected = [
            format!("vllm:request_params_n_bucket{{{labels},le=\"1.0\"}} 1"),
            format!("vllm:request_params_n_bucket{{{labels},le=\"2.0\"}} 1"),
            format!("vllm:request_params_n_bucket{{{labels},le=\"5.0\"}} 2"),
            format!("vllm:request_params_n_bucket{{{labels},le=\"10.0\"}} 2"),
            format!("vllm:request_params_n_bucket{{{labels},le=\"20.0\"}} 2"),
            format!("vllm:request_params_n_bucket{{{labels},le=\"+Inf\"}} 3"),
            format!("vllm:request_params_n_sum{{{labels}}} 103"),
            format!("vllm:request_params_n_count{{{labels}}} 3"),
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn tokens_that_nobody_waited_for_are_counted() {
        let metrics = metrics();
        let mut stats = Stats::default();
        stats.totals.num_output_tokens = 7;
        stats.totals.num_preemptions = 2;
        metrics.stats(&stats);
        let page = metrics.render();
        let value = |name: &str| {
            let line = page.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.rsplit(' ').next().map(str::to_string))
        };
        assert_eq!(value("vllm:generation_tokens_total{").as_deref(), Some("7"));
        assert_eq!(value("vllm:num_preemptions_total{").as_deref(), Some("2"));
    }

    #[test]
    fn what_gateways_must_have_is_there_from_the_start() {
        let page = metrics().render();
        for needed in [
            "vllm:num_requests_waiting{",
            "vllm:num_requests_running{",
            "vllm:kv_cache_usage_perc{",
            "block_size=\"64\",num_gpu_blocks=\"8\"",
            "vllm:prefix_cache_hits{",
            "vllm:generation_tokens_total{",
            "finished_reason=\"length\"",
        ] {
            assert!(page.contains(needed), "{needed} is missing in\n{page}");
        }
    }
}
