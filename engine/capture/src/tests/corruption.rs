//! One thing in a sound capture is changed, and the verdict names the stage and the step.

use super::*;
use crate::{News, Text};
use lockstep_step::{Digest, QueryToken, StepId};

/// A verdict must name this stage, and this step where there is one.
fn check(capture: &Capture, stage: Stage, step: Option<StepId>) {
    let verdict = replayed(capture, 3);
    let (found, first) = verdict.guilty().expect("something is wrong");
    assert_eq!(found, stage, "{first:?}");
    if step.is_some() {
        assert_eq!(first.step, step, "{first:?}");
    }
}

/// Steps, with the number of parts that draw and count.
fn steps(capture: &Capture) -> Vec<StepId> {
    let steps = capture.steps.iter();
    let drawing = steps.filter(|(_, step)| {
        let draws = match &step.output {
            Some(Ok(output)) => output.seqs[0].draws.as_ref().map_or(0, Vec::len),
            _ => 0,
        };
        draws > 0
    });
    drawing.map(|(id, _)| *id).collect()
}

fn plain() -> Options {
    Options {
        overlap: false,
        prefix_cache: false,
        ..Options::default()
    }
}

#[test]
fn a_flipped_digest_of_logits() {
    let sound = capture(&plain());
    for id in steps(&sound).into_iter().step_by(3) {
        let mut other = sound.clone();
        let step = other.steps.get_mut(&id).expect("a step");
        if let Some(Ok(output)) = &mut step.output
            && let Ok(draws) = &mut output.seqs[0].draws
        {
            draws[0].digest.0 ^= 1 << 40;
        }
        check(&other, Stage::Logits, Some(id));
    }
}

#[test]
fn a_flipped_draw() {
    let sound = capture(&plain());
    for id in steps(&sound).into_iter().step_by(3) {
        let mut other = sound.clone();
        let step = other.steps.get_mut(&id).expect("a step");
        if let Some(Ok(output)) = &mut step.output
            && let Ok(draws) = &mut output.seqs[0].draws
        {
            draws[0].token = TokenId((draws[0].token.0 + 1) % 60);
        }
        check(&other, Stage::Draw, Some(id));
    }
}

#[test]
fn a_flipped_bit_of_a_mask() {
    let sound = capture(&plain());
    let mut num = 0;
    for (id, step) in &sound.steps {
        let counts = step
            .plan
            .seqs
            .iter()
            .find_map(|part| part.scored.first()?.mask);
        let Some(row) = counts else {
            continue;
        };
        let mut other = sound.clone();
        let masks = other.steps.get_mut(id).and_then(|step| step.masks.as_mut());
        let digest = masks.and_then(|masks| masks[row.0 as usize].as_mut());
        digest.expect("a row that was filled").0 ^= 2;
        check(&other, Stage::Mask, Some(*id));
        num += 1;
        if num == 6 {
            return;
        }
    }
    panic!("only {num} masks were changed");
}

#[test]
fn a_token_of_a_plan() {
    let sound = capture(&plain());
    for (id, step) in sound.steps.iter().step_by(4) {
        let mut other = sound.clone();
        let part = &mut other.steps.get_mut(id).expect("a step").plan.seqs[0];
        let QueryToken::Known(token) = &mut part.query[0] else {
            panic!("nothing is planned ahead in {step:?}");
        };
        token.0 = (token.0 + 1) % 60;
        check(&other, Stage::Schedule, Some(*id));
    }
}

#[test]
fn a_row_or_a_block_of_a_plan() {
    let sound = capture(&plain());
    let mut num = 0;
    for (id, step) in &sound.steps {
        let part = &step.plan.seqs[0];
        let Some(row) = part.rows.read else {
            continue;
        };
        let mut other = sound.clone();
        let own = &mut other.steps.get_mut(id).expect("a step").plan.seqs[0];
        own.rows.read = Some(lockstep_step::RowId((row.0 + 1) % 96));
        check(&other, Stage::StateRow, Some(*id));
        let mut other = sound.clone();
        let own = &mut other.steps.get_mut(id).expect("a step").plan.seqs[0];
        own.block_table[0].0 = (own.block_table[0].0 + 20) % 48;
        check(&other, Stage::StateRow, Some(*id));
        num += 1;
        if num == 6 {
            return;
        }
    }
    panic!("only {num} rows were changed");
}

#[test]
fn a_start_of_a_plan_that_is_one_too_far() {
    let sound = capture(&plain());
    let id = steps(&sound)[4];
    let mut other = sound.clone();
    other.steps.get_mut(&id).expect("a step").plan.seqs[0]
        .start
        .0 += 1;
    check(&other, Stage::Schedule, Some(id));
}

/// Changes one event, and says which stage must be named.
fn change(news: &mut News) -> Option<Stage> {
    let longer = |text: &mut Text| {
        let Text::Plain(bytes) = text else {
            panic!("nothing is left out");
        };
        bytes.insert(0, b'!');
    };
    match news {
        News::Token { bytes, .. } => {
            longer(bytes);
            Some(Stage::Detokenize)
        }
        News::Content(text) | News::Reasoning(text) => {
            longer(text);
            Some(Stage::Detokenize)
        }
        News::Finished(finished) => {
            finished.completion_tokens += 1;
            Some(Stage::Stop)
        }
        _ => None,
    }
}

#[test]
fn each_event() {
    let sound = capture(&plain());
    let mut seen = std::collections::BTreeSet::new();
    for idx in (0..sound.events.len()).step_by(3) {
        let mut other = sound.clone();
        let Some(stage) = change(&mut other.events[idx].1.news) else {
            continue;
        };
        seen.insert(stage);
        check(&other, stage, other.events[idx].0);
        // What the last step said could have been lost with the end of the recording.
        if sound.events[idx].0 == sound.steps.keys().next_back().copied() {
            continue;
        }
        let mut lost = sound.clone();
        lost.events.remove(idx);
        let verdict = replayed(&lost, 3);
        let (stage, first) = verdict.guilty().expect("an event is missing");
        assert!(stage >= Stage::Verify, "{stage}: {first:?}");
    }
    assert!(seen.contains(&Stage::Detokenize), "{seen:?}");
    let at = sound
        .events
        .iter()
        .position(|(_, own)| matches!(own.news, News::Finished(_)));
    let mut other = sound.clone();
    let at = at.expect("one ends");
    assert_eq!(change(&mut other.events[at].1.news), Some(Stage::Stop));
    check(&other, Stage::Stop, None);
}

#[test]
fn a_token_event_of_another_token_or_digest() {
    let sound = capture(&plain());
    let at = sound
        .events
        .iter()
        .position(|(_, own)| matches!(own.news, News::Token { .. }));
    let at = at.expect("a token");
    for changes_token in [true, false] {
        let mut other = sound.clone();
        if let News::Token { token, digest, .. } = &mut other.events[at].1.news {
            match changes_token {
                true => token.0 = (token.0 + 1) % 60,
                false => *digest = Digest(digest.0 ^ 1),
            }
        }
        check(&other, Stage::Verify, other.events[at].0);
    }
}

#[test]
fn reasoning_that_is_told_as_content_is_a_matter_of_tags() {
    let options = Options { seed: 5, ..plain() };
    let sound = capture(&options);
    let at = sound
        .events
        .iter()
        .position(|(_, own)| matches!(own.news, News::Reasoning(_)));
    let at = at.expect("somebody reasons");
    let mut other = sound.clone();
    if let News::Reasoning(text) = &other.events[at].1.news {
        other.events[at].1.news = News::Content(text.clone());
    }
    check(&other, Stage::Tags, other.events[at].0);
}

#[test]
fn a_plan_that_no_backend_could_run_is_named_and_not_followed() {
    let sound = capture(&plain());
    let id = steps(&sound)[2];
    for broken in 0..3 {
        let mut other = sound.clone();
        let part = &mut other.steps.get_mut(&id).expect("a step").plan.seqs[0];
        match broken {
            0 => part.num_drafts = 1000,
            1 => part.query.clear(),
            _ => part.block_table.clear(),
        }
        check(&other, Stage::Schedule, Some(id));
    }
}
