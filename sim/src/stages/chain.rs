//! From tokens to what a reader sees: a fresh engine is given the very tokens that were drawn, one at a time,
//! and its events are held against those of the run. Where the same text stands in other channels the tags are
//! to blame, else the output.

use super::Finding;
use super::turns::turns;
use crate::life::{Life, Submit};
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_core::{
    Engine, EngineConfig, EventKind, Finish, Finished, Request, RequestError, Speculation, Time,
    run_step,
};
use lockstep_server::ChatModel;
use lockstep_step::{
    BLOCK_LEN, Backend, BackendError, BackendLimits, Draw, MaskSet, SeqId, SeqOutput, StepOutput,
    StepPlan, TokenId,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub(super) fn check(run: &Run) -> Vec<Finding> {
    let lives = run.lives.iter().enumerate();
    let found = lives.flat_map(|(idx, book)| {
        let life = book.open();
        let mut drawn: BTreeMap<SeqId, Vec<(u64, Draw)>> = BTreeMap::new();
        for turn in turns(&life) {
            let of = drawn.entry(turn.part.seq).or_default();
            of.extend(turn.draws.iter().map(|draw| (turn.step.0, draw.clone())));
        }
        let found = drawn
            .iter()
            .filter_map(|(seq, draws)| one(run, idx, &life, *seq, draws));
        found.collect::<Vec<Finding>>()
    });
    found.collect()
}

/// The text that a token is: none for a control token.
pub(super) fn text_of(token: TokenId, model: &dyn ChatModel) -> &[u8] {
    let text = model.token_bytes(token);
    let tags = model.contract().tag_format.call_tags();
    let is_tag = tags
        .iter()
        .chain(&lockstep_tags::THINK_TAGS)
        .any(|tag| tag.as_bytes() == text);
    if model.is_special(token) && !is_tag {
        &[]
    } else {
        text
    }
}

fn one(run: &Run, idx: usize, life: &Life, seq: SeqId, draws: &[(u64, Draw)]) -> Option<Finding> {
    let submit = life.submits.get(&seq)?;
    let told = news(
        life.events
            .iter()
            .filter(|event| event.seq == seq)
            .map(|event| &event.kind),
    );
    let only: Vec<Draw> = draws.iter().map(|(_, draw)| draw.clone()).collect();
    let wanted = again(run, submit, &only, false);
    let at = told
        .iter()
        .zip(&wanted)
        .position(|(told, wanted)| told != wanted)?;
    // Whoever was ended from outside says nothing more, and that is right.
    if is_cut(&told[at]) {
        return None;
    }
    let num_tokens = told[..at].iter().filter(|kind| is_token(kind)).count();
    let step = draws
        .get(num_tokens.saturating_sub(1))
        .map(|(step, _)| *step);
    let open = again(run, submit, &only, true);
    Some(Finding {
        stage: stage(
            run,
            (&told, &wanted),
            at,
            open.len(),
            !submit.stop_strings.is_empty(),
        ),
        life: idx,
        step,
        what: format!("{seq:?} said {:?}, wanted {:?}", told[at], wanted[at]),
    })
}

/// What readers are told, without what depends on company.
fn news<'a>(kinds: impl Iterator<Item = &'a EventKind>) -> Vec<EventKind> {
    let kinds = kinds.filter(|kind| !matches!(kind, EventKind::Scheduled | EventKind::Preempted));
    let plain = kinds.cloned().map(|kind| match kind {
        EventKind::Finished(mut finished) => {
            finished.usage.cached_tokens = 0;
            EventKind::Finished(finished)
        }
        kind => kind,
    });
    plain.collect()
}

fn is_token(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Token { .. })
}

fn is_cut(kind: &EventKind) -> bool {
    let EventKind::Finished(Finished { finish, .. }) = kind else {
        return false;
    };
    match finish {
        Finish::Error(error) => !matches!(error, RequestError::Tag(_)),
        Finish::Aborted => true,
        _ => false,
    }
}

fn has_tag_error(kinds: &[EventKind]) -> bool {
    let is = |kind: &EventKind| match kind {
        EventKind::Finished(finished) => {
            matches!(finished.finish, Finish::Error(RequestError::Tag(_)))
        }
        _ => false,
    };
    kinds.iter().any(is)
}

/// Who is to blame for the difference at a place. `num_open` events come before the end is known;
/// `stops`: it may end at a string.
fn stage(
    run: &Run,
    (told, wanted): (&[EventKind], &[EventKind]),
    at: usize,
    num_open: usize,
    stops: bool,
) -> Stage {
    if let (EventKind::Token { token, bytes, .. }, EventKind::Token { bytes: whole, .. }) =
        (&told[at], &wanted[at])
    {
        let tags = run.model.contract().tag_format.call_tags();
        let mut tags = tags.iter().chain(&lockstep_tags::THINK_TAGS);
        let is_tag = tags.any(|tag| tag.as_bytes() == run.model.token_bytes(*token));
        let is_lost = is_tag && bytes.is_empty() && !whole.is_empty();
        return if is_lost { Stage::Tags } else { Stage::Output };
    }
    if has_tag_error(told) != has_tag_error(wanted) {
        return Stage::Tags;
    }
    if let (EventKind::Finished(told), EventKind::Finished(wanted)) = (&told[at], &wanted[at])
        && told.dropped_call != wanted.dropped_call
    {
        return Stage::Tags;
    }
    if at >= num_open {
        return Stage::Output;
    }
    // One may have ended sooner than the other.
    let num_tokens = |kinds: &[EventKind]| kinds.iter().filter(|kind| is_token(kind)).count();
    let len = num_tokens(told).min(num_tokens(wanted));
    let (told, wanted) = (
        channels(beginning(told, len)),
        channels(beginning(wanted, len)),
    );
    let num_calls = |list: &[(String, String)]| {
        list.iter()
            .filter(|part| part.0.starts_with("call"))
            .count()
    };
    if num_calls(&told) != num_calls(&wanted) {
        return Stage::Tags;
    }
    let pairs = told.iter().zip(&wanted).enumerate();
    let mut differ = pairs.filter(|(_, (told, wanted))| told != wanted);
    let Some((idx, (here, there))) = differ.next() else {
        // Calls that were never seen, what stood behind one, or what only a parser holds back.
        let is_call =
            |part: Option<&(String, String)>| part.is_some_and(|part| part.0.starts_with("call"));
        let is_short =
            told.len() < wanted.len() && (is_call(told.last()) || is_call(wanted.get(told.len())));
        let is_early = told.len() > wanted.len() && !stops;
        return if is_short || is_early {
            Stage::Tags
        } else {
            Stage::Output
        };
    };
    let goes_on = |list: &[(String, String)]| idx + 1 < list.len();
    let is_moved = here.0 != there.0
        || here.1.starts_with(&there.1) && goes_on(&wanted)
        || there.1.starts_with(&here.1) && goes_on(&told);
    if is_moved { Stage::Tags } else { Stage::Output }
}

/// What so many tokens brought.
fn beginning(kinds: &[EventKind], num_tokens: usize) -> &[EventKind] {
    let tokens = kinds.iter().enumerate().filter(|(_, kind)| is_token(kind));
    let end = tokens.map(|(at, _)| at).nth(num_tokens);
    &kinds[..end.unwrap_or(kinds.len())]
}

/// What stands where, neighbours of one channel together.
fn channels(kinds: &[EventKind]) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = Vec::new();
    for kind in kinds {
        let (channel, text) = match kind {
            EventKind::Reasoning(text) => ("reasoning".to_owned(), text.as_str()),
            EventKind::Content(text) => ("content".to_owned(), text.as_str()),
            EventKind::CallBegin { index, name } => (format!("call {index}"), name.as_str()),
            EventKind::CallArguments { index, fragment } => {
                (format!("call {index}"), fragment.as_str())
            }
            _ => continue,
        };
        match list.last_mut() {
            Some((last, all)) if *last == channel => all.push_str(text),
            _ => list.push((channel, text.to_owned())),
        }
    }
    list
}

/// The events that these draws make. `is_open`: without the end tokens and the length that end them.
fn again(run: &Run, submit: &Submit, draws: &[Draw], is_open: bool) -> Vec<EventKind> {
    let options = &run.options;
    let in_blocks = options.limits.num_blocks * BLOCK_LEN;
    let seq_len_max = options.limits.seq_len_max.min(in_blocks);
    let slack = if is_open { 64 } else { 0 };
    let limits = BackendLimits {
        vocab_size: run.model.contract().vocab_size,
        num_blocks: 64,
        num_rows: 0,
        seq_len_max: seq_len_max + slack,
        query_tokens_max: 4096,
    };
    let config = EngineConfig {
        speculation: Speculation::OFF,
        prefix_cache: false,
        overlap: false,
        max_num_batched_tokens: 4096,
        chunk_tokens_max: 4096,
        ..EngineConfig::default()
    };
    let vocabulary = Arc::new(lockstep_server::vocabulary(run.model.as_ref()));
    let Ok(mut engine) = Engine::new(config, limits, vocabulary) else {
        return Vec::new();
    };
    let mut draws: VecDeque<Draw> = draws.iter().cloned().collect();
    let mut end_tokens = submit.end_tokens.clone();
    if is_open {
        end_tokens.clear();
        while draws
            .back()
            .is_some_and(|draw| submit.end_tokens.contains(&draw.token))
        {
            draws.pop_back();
        }
    }
    let request = Request {
        prompt: submit.prompt.clone(),
        sampling: submit.sampling.clone(),
        max_tokens: submit.max_tokens + slack,
        end_tokens,
        stop_strings: submit.stop_strings.clone(),
        tags: submit.tags.clone(),
        matcher: None,
        reasoning: None,
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
    };
    if engine.submit(Time::default(), request).is_err() {
        return Vec::new();
    }
    let mut replay = Replay { limits, draws };
    let mut kinds = Vec::new();
    while engine.has_work() && !replay.draws.is_empty() {
        if run_step(&mut engine, &mut replay, Time::default()).is_err() {
            break;
        }
        kinds.extend(engine.poll_events().into_iter().map(|event| event.kind));
    }
    news(kinds.iter())
}

/// Draws what it is told to.
struct Replay {
    limits: BackendLimits,
    draws: VecDeque<Draw>,
}

impl Backend for Replay {
    type Forward = StepPlan;
    type Sampled = StepOutput;

    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<StepPlan, BackendError> {
        Ok(plan.clone())
    }

    fn draw(&mut self, plan: StepPlan, _: &MaskSet) -> Result<StepOutput, BackendError> {
        let seqs = plan.seqs.iter().map(|part| SeqOutput {
            seq: part.seq,
            draws: Ok(part
                .scored
                .iter()
                .filter_map(|_| self.draws.pop_front())
                .collect()),
        });
        Ok(StepOutput {
            step: plan.step,
            seqs: seqs.collect(),
        })
    }

    fn collect(&mut self, sampled: StepOutput) -> Result<StepOutput, BackendError> {
        Ok(sampled)
    }
}
