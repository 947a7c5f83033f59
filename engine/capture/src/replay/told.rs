//! What readers were told, against what the recorded tokens say by a fresh output chain. Where the same text stands in
//! other channels tags are to blame, where an output ends elsewhere the rules that end it, and else the text of tokens.

use super::again::Again;
use crate::capture::Capture;
use crate::record::{EventRecord, FinishRecord, News, Text, Why};
use crate::stage::{Divergence, Stage, Verdict};
use lockstep_step::{Draw, SeqId, StepId};

/// Compares all sequences.
pub(super) fn compare(capture: &Capture, again: &Again, verdict: &mut Verdict) {
    let answered = capture.steps.iter().rev();
    let mut answered = answered.filter(|(_, step)| step.output.is_some());
    let last_answered = answered.next().map(|(id, _)| *id);
    for (seq, wanted) in &again.told {
        let told: Vec<(Option<StepId>, &News)> = capture
            .events_of(*seq)
            .filter(|(_, news)| !matches!(news, News::Scheduled | News::Preempted))
            .collect();
        if told.is_empty() {
            continue;
        }
        let left = capture.left.contains(seq);
        one(*seq, &told, wanted, (left, last_answered), verdict);
    }
    for stage in [Stage::Verify, Stage::Detokenize, Stage::Stop, Stage::Tags] {
        verdict.unobserved(stage, "no reader was told anything of the kind");
    }
}

fn one(
    seq: SeqId,
    told: &[(Option<StepId>, &News)],
    wanted: &[EventRecord],
    (left, last_answered): (bool, Option<StepId>),
    verdict: &mut Verdict,
) {
    let wanted: Vec<News> = wanted
        .iter()
        .map(|event| event.news.clone())
        .filter(|news| !matches!(news, News::Scheduled | News::Preempted))
        .collect();
    let mut at = 0;
    while let Some(&(step, found)) = told.get(at) {
        let expected = wanted.get(at);
        if expected.is_some_and(|expected| is_same(found, expected)) {
            verdict.of(stage_of(found)).agree();
            if let News::Token { .. } = found {
                verdict.of(Stage::Verify).agree();
            }
            at += 1;
            continue;
        }
        // Whoever was ended from outside says nothing more, and that is right.
        if is_cut(found) || expected.is_some_and(|own| is_cut(own) && left) {
            return;
        }
        let stage = blame(&told[at..], &wanted[at.min(wanted.len())..]);
        verdict.of(stage).count(false, || Divergence {
            seq,
            step,
            pos: None,
            expected: expected.map_or("nothing more".to_string(), say),
            found: say(found),
            near: None,
        });
        return;
    }
    // It ends early: fine where its reader left, or where recording ended before the next step was answered.
    let last = told.last().and_then(|(step, _)| *step);
    if let (Some(expected), false) = (wanted.get(at), left)
        && last < last_answered
    {
        verdict.of(stage_of(expected)).count(false, || Divergence {
            seq,
            step: last,
            pos: None,
            expected: say(expected),
            found: "nothing more".to_string(),
            near: None,
        });
    }
}

/// Equal, but for what depends on company.
pub(crate) fn is_same(found: &News, expected: &News) -> bool {
    match (found, expected) {
        (News::Finished(found), News::Finished(expected)) => {
            let plain = |own: &FinishRecord| FinishRecord {
                cached_tokens: 0,
                ..own.clone()
            };
            plain(found) == plain(expected)
        }
        _ => found == expected,
    }
}

/// Which stage says such a thing.
pub(crate) fn stage_of(news: &News) -> Stage {
    match news {
        News::Token { .. } => Stage::Detokenize,
        News::Scheduled | News::Preempted => Stage::Schedule,
        News::Finished(_) => Stage::Stop,
        News::Dropped(_)
        | News::Reasoning(_)
        | News::Content(_)
        | News::CallBegin(..)
        | News::CallArguments(..)
        | News::CallEnd(_) => Stage::Tags,
    }
}

/// Whether somebody else ended it: its client, or a step that failed.
fn is_cut(news: &News) -> bool {
    let News::Finished(finished) = news else {
        return false;
    };
    match &finished.why {
        Why::Aborted => true,
        Why::Error(kind, _) => [
            "step_failed",
            "not_finite",
            "nothing_allowed",
            "plan_refused",
        ]
        .contains(&kind.as_str()),
        _ => false,
    }
}

/// Who is to blame where the two go apart.
pub(crate) fn blame(told: &[(Option<StepId>, &News)], wanted: &[News]) -> Stage {
    let (found, expected) = (told.first().map(|own| own.1), wanted.first());
    match (found, expected) {
        (
            Some(News::Token { token, bytes, .. }),
            Some(News::Token {
                token: own,
                bytes: own_bytes,
                ..
            }),
        ) => match token == own && bytes != own_bytes {
            true => Stage::Detokenize,
            false => Stage::Verify,
        },
        (Some(News::Finished(found)), Some(News::Finished(expected))) => finish(found, expected),
        // One of them goes on with tokens where the other has ended.
        (Some(News::Token { .. }), _) | (_, Some(News::Token { .. })) => {
            let ends = |news: Option<&News>| matches!(news, Some(News::Finished(_)) | None);
            match ends(found) || ends(expected) {
                true => Stage::Stop,
                false => text(told, wanted),
            }
        }
        _ => text(told, wanted),
    }
}

fn finish(found: &FinishRecord, expected: &FinishRecord) -> Stage {
    let is_tags = |why: &Why| match why {
        Why::ToolCalls => true,
        Why::Error(kind, _) => kind != "grammar_failed",
        _ => false,
    };
    if found.dropped_call != expected.dropped_call {
        return Stage::Tags;
    }
    let differs = found.why != expected.why;
    match differs && (is_tags(&found.why) || is_tags(&expected.why)) {
        true => Stage::Tags,
        false => Stage::Stop,
    }
}

/// Where text differs: in which channel it stands, where it ends, or what it is.
fn text(told: &[(Option<StepId>, &News)], wanted: &[News]) -> Stage {
    let own = |news: &News| match news {
        News::Reasoning(text) => Some((0, text.clone())),
        News::Content(text) => Some((1, text.clone())),
        News::CallBegin(index, text) => Some((2 + 2 * index, text.clone())),
        News::CallArguments(index, text) => Some((3 + 2 * index, text.clone())),
        _ => None,
    };
    let found = told.first().and_then(|(_, news)| own(news));
    let expected = wanted.first().and_then(own);
    let (Some((channel, found)), Some((other, expected))) = (found, expected) else {
        return Stage::Tags;
    };
    if channel != other {
        return Stage::Tags;
    }
    let (Text::Plain(found), Text::Plain(expected)) = (found, expected) else {
        return Stage::Detokenize;
    };
    let is_part = found.starts_with(&expected) || expected.starts_with(&found);
    let ends = |news: Option<&News>| matches!(news, Some(News::Finished(_)) | None);
    let ends = ends(told.get(1).map(|own| own.1)) || ends(wanted.get(1));
    match (is_part, ends) {
        (true, true) => Stage::Stop,
        (true, false) => Stage::Tags,
        (false, _) => Stage::Detokenize,
    }
}

/// News in a few words.
pub(crate) fn say(news: &News) -> String {
    let words = format!("{news:?}");
    match words.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// A draw in a few words.
pub(crate) fn drawn(draw: &Draw) -> String {
    match &draw.logprobs {
        None => format!("token {}", draw.token),
        Some(logprobs) => format!("token {}, log-probability {}", draw.token, logprobs.drawn),
    }
}
