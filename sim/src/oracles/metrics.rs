//! The metrics page says what happened.

use super::Bench;
use crate::reference::Answers;
use crate::world::Run;
use lockstep_core::EventKind;
use lockstep_step::SeqId;

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    let (Some(page), Some(life)) = (&run.metrics, run.lives.last()) else {
        bench.check(None, Err("there is no metrics page".to_owned()));
        return;
    };
    let life = life.open();
    let totals = &life.stats.totals;
    // What was left counts as it is left, unless the request had not been taken whole.
    let is_left = |seq: &SeqId| life.left.contains(seq);
    let of_refused = |seq: &&SeqId| {
        let submit = life.submits.get(seq);
        submit.is_some_and(|submit| life.refused.iter().any(|(id, _)| *id == submit.id))
    };
    let finished = life
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Finished(_)) && !is_left(&event.seq));
    let left = life.left.iter().filter(|seq| !of_refused(seq));
    let finished = (finished.count() + left.count()) as u64;
    let wanted = [
        ("vllm:num_requests_running", 0),
        ("vllm:num_requests_waiting", 0),
        ("vllm:generation_tokens_total", totals.num_output_tokens),
        ("vllm:num_preemptions_total", totals.num_preemptions),
        ("vllm:prefix_cache_hits_total", totals.num_cached_tokens),
        (
            "vllm:prefix_cache_queries_total",
            totals.num_looked_up_tokens,
        ),
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
        ("vllm:request_success_total", finished),
    ];
    for (name, wanted) in wanted {
        let told = sum(page, name);
        bench.check(
            None,
            match told {
                Some(told) if told == wanted => Ok(()),
                // A family without a sample was never counted.
                None if wanted == 0 => Ok(()),
                told => Err(format!("{name} is {told:?}, wanted {wanted}")),
            },
        );
    }
}

/// All samples of a family together.
fn sum(page: &str, name: &str) -> Option<u64> {
    let samples = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_own = rest.starts_with([' ', '{']);
        is_own
            .then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .flatten()
    });
    samples.map(|value| value as u64).reduce(|a, b| a + b)
}
