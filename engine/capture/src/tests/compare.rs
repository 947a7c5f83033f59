//! Two runs of the same requests with other settings agree, and each single change is found at its stage.

use super::*;
use crate::{CompareError, Compared, News, Side, Text, Why, compare};
use lockstep_step::{Digest, SeqId};

/// Where something was compared whatever the requests are.
const ALWAYS: [Stage; 4] = [Stage::Logits, Stage::Draw, Stage::Verify, Stage::Detokenize];

fn both(a: &Capture, b: &Capture) -> Compared {
    compare(a, b).expect("two captures of the same requests")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_setting_changes_what_is_said(one in options(), other in options()) {
        let other = Options {
            seed: one.seed,
            num_requests: one.num_requests,
            has_rows: one.has_rows,
            reasoning: one.reasoning,
            ..other
        };
        let (a, b) = (capture(&one), capture(&other));
        let compared = both(&a, &b);
        prop_assert_eq!(&compared.first, &None);
        prop_assert!(compared.agrees(), "{:?}", compared.left_out);
        // What one of them can't hold is refused there.
        let num_pairs = compared.pairs.len();
        prop_assert_eq!(num_pairs, a.requests.len().min(b.requests.len()));
        for stage in ALWAYS {
            prop_assert!(compared.verdict.at(stage).passes(), "{:?}", compared.verdict.at(stage));
        }
        for stage in Stage::ALL {
            let found = compared.verdict.at(stage);
            prop_assert!(found.passes() || found.unobserved.is_some(), "{found:?}");
        }
    }
}

/// Another run of the same requests.
fn two() -> (Capture, Capture) {
    let other = Options {
        overlap: false,
        prefix_cache: false,
        speculation: Speculation::OFF,
        chunk: 9,
        ..Options::default()
    };
    (capture(&Options::default()), capture(&other))
}

/// The same divergence must be found from both sides, at this stage.
fn check(a: &Capture, b: &Capture, stage: Stage) {
    for (a, b) in [(a, b), (b, a)] {
        let compared = both(a, b);
        let (found, first) = compared.first.expect("something differs");
        assert_eq!(found, stage, "{first:?}");
        assert_ne!(first.expected, first.found);
        let at = compared.verdict.at(stage);
        assert!(!at.passes() && at.num_compared > at.num_agreeing);
    }
}

/// Draws of a sequence that nobody else's would be taken for: those of the first that count, by index of the output.
fn change_draw(capture: &mut Capture, change: impl Fn(&mut lockstep_step::Draw)) {
    for step in capture.steps.values_mut() {
        if let Some(Ok(output)) = &mut step.output
            && let Ok(draws) = &mut output.seqs[0].draws
            && let Some(draw) = draws.first_mut()
        {
            return change(draw);
        }
    }
    panic!("nothing is drawn");
}

#[test]
fn a_digest_of_logits() {
    let (a, mut b) = two();
    change_draw(&mut b, |draw| draw.digest.0 ^= 1 << 33);
    check(&a, &b, Stage::Logits);
}

#[test]
fn a_draw_from_the_same_logits() {
    let (a, mut b) = two();
    change_draw(&mut b, |draw| draw.token.0 = (draw.token.0 + 1) % 60);
    // The plans that follow compute the old token, which is no longer what was drawn.
    let compared = both(&a, &b);
    assert_eq!(compared.left_out.len(), 1, "{:?}", compared.left_out);
    assert!(!compared.agrees());
    check(&a, &b, Stage::Draw);
}

#[test]
fn logits_of_a_step_whose_plan_is_wrong() {
    let (a, mut b) = two();
    // It reads another row, and so computes other logits.
    let step = b.steps.values_mut().find(|step| {
        let part = &step.plan.seqs[0];
        part.rows.read.is_some() && !part.scored.is_empty()
    });
    let step = step.expect("a step that reads a row and draws");
    let row = &mut step.plan.seqs[0].rows.read;
    *row = row.map(|row| lockstep_step::RowId((row.0 + 1) % 96));
    if let Some(Ok(output)) = &mut step.output
        && let Ok(draws) = &mut output.seqs[0].draws
    {
        draws[0].digest.0 ^= 1;
    }
    assert_eq!(both(&a, &b).left_out.len(), 1);
    check(&a, &b, Stage::Logits);
}

#[test]
fn a_mask() {
    let (a, mut b) = two();
    let steps = b.steps.values_mut();
    let mut rows = steps.filter_map(|step| step.masks.as_mut()).flatten();
    let digest = rows.find_map(Option::as_mut).expect("a mask");
    digest.0 ^= 4;
    check(&a, &b, Stage::Mask);
}

#[test]
fn what_readers_were_told() {
    let (a, b) = two();
    let mut stages = std::collections::BTreeSet::new();
    for idx in (0..b.events.len()).step_by(2) {
        let mut other = b.clone();
        let longer = |text: &mut Text| {
            if let Text::Plain(bytes) = text {
                bytes.insert(0, b'!');
            }
        };
        let stage = match &mut other.events[idx].1.news {
            News::Token { token, .. } if idx % 4 == 0 => {
                token.0 = (token.0 + 1) % 60;
                Stage::Verify
            }
            News::Token { bytes, .. } => {
                longer(bytes);
                Stage::Detokenize
            }
            News::Content(text) | News::Reasoning(text) => {
                longer(text);
                Stage::Detokenize
            }
            News::Finished(finished) => {
                finished.why = Why::Length;
                finished.completion_tokens += 1;
                Stage::Stop
            }
            _ => continue,
        };
        stages.insert(stage);
        check(&a, &other, stage);
    }
    assert_eq!(stages.len(), 3, "{stages:?}");
    let is_reasoning =
        |own: &&mut (_, crate::EventRecord)| matches!(own.1.news, News::Reasoning(_));
    let mut other = b.clone();
    let event = other.events.iter_mut().find(is_reasoning);
    let event = event.expect("somebody reasons");
    if let News::Reasoning(text) = &event.1.news {
        event.1.news = News::Content(text.clone());
    }
    check(&a, &other, Stage::Tags);
}

#[test]
fn what_follows_the_first_token_that_differs_is_not_compared() {
    let (a, b) = two();
    let other = capture(&Options {
        seed: 2,
        ..Options::default()
    });
    // Asked the same, and answered as something else.
    let mut strange = other.clone();
    for (request, own) in strange.requests.values_mut().zip(a.requests.values()) {
        let seq = request.seq;
        *request = own.clone();
        request.seq = seq;
    }
    let compared = both(&a, &strange);
    assert!(compared.first.is_some());
    let (verdict, all) = (&compared.verdict, both(&a, &b).verdict);
    let num = verdict.at(Stage::Verify).num_compared;
    assert!(num < all.at(Stage::Verify).num_compared, "{num}");
}

#[test]
fn a_sequence_that_was_cut_short_differs_in_nothing() {
    let (a, mut b) = two();
    // Nothing is heard of it after half of its events.
    let seq = *b.requests.keys().next().expect("a request");
    let num = b.events.iter().filter(|own| own.1.seq == seq).count();
    let mut nth = 0;
    b.events.retain(|own| {
        nth += usize::from(own.1.seq == seq);
        own.1.seq != seq || nth <= num / 2
    });
    let compared = both(&a, &b);
    assert!(compared.agrees(), "{:?}", compared.first);
    let whole = both(&a, &a).verdict;
    let num = compared.verdict.at(Stage::Verify).num_compared;
    assert!(num < whole.at(Stage::Verify).num_compared);
}

#[test]
fn who_has_no_partner_is_said_with_the_reason() {
    let (mut a, mut b) = two();
    let first = *a.requests.keys().next().expect("a request");
    a.requests.get_mut(&first).expect("a request").max_tokens += 1;
    let last = *b.requests.keys().next_back().expect("a request");
    b.requests.remove(&last);
    let compared = both(&a, &b);
    assert!(compared.agrees());
    assert_eq!(compared.pairs.len(), a.requests.len() - 2);
    let alone: Vec<_> = compared
        .alone
        .iter()
        .map(|own| (own.side, own.why.as_str()))
        .collect();
    assert_eq!(
        alone,
        [
            (Side::A, "the nearest differs in max_tokens"),
            (Side::A, "the other has no request with its prompt"),
            (Side::B, "the nearest differs in max_tokens"),
        ]
    );
}

#[test]
fn those_that_were_asked_the_same_are_paired_by_request_id() {
    let (mut a, mut b) = two();
    for capture in [&mut a, &mut b] {
        let first = capture.requests.values().next().expect("a request").clone();
        for request in capture.requests.values_mut() {
            let (seq, request_id) = (request.seq, request.request_id.clone());
            *request = crate::RequestRecord {
                seq,
                request_id,
                ..first.clone()
            };
        }
    }
    let ids: Vec<SeqId> = b.requests.keys().rev().copied().collect();
    // The ids of B in reverse.
    let names: Vec<String> = b
        .requests
        .values()
        .map(|own| own.request_id.clone())
        .collect();
    for (seq, name) in ids.iter().zip(&names) {
        b.requests.get_mut(seq).expect("a request").request_id = name.clone();
    }
    let pairs = both(&a, &b).pairs;
    let wanted: Vec<(SeqId, SeqId)> = a.requests.keys().copied().zip(ids).collect();
    assert_eq!(pairs, wanted);
}

#[test]
fn nothing_to_pair_and_nothing_to_compare_are_errors() {
    let (a, b) = two();
    let other = capture(&Options {
        seed: 7,
        ..Options::default()
    });
    let error = compare(&a, &other).expect_err("other requests");
    assert!(
        matches!(
            error,
            CompareError::NoPair {
                num_a: 6,
                num_b: 6,
                ..
            }
        ),
        "{error}"
    );
    let mut silent = b.clone();
    silent.events.clear();
    silent.steps.clear();
    let error = compare(&a, &silent).expect_err("nothing was recorded");
    assert_eq!(error, CompareError::Nothing { num_pairs: 6 });
}

#[test]
fn headers_are_held_against_each_other() {
    let (a, mut b) = two();
    b.header.backend = "cuda".to_string();
    b.header.settings = vec![("overlap".to_string(), "off".to_string())];
    let settings = both(&a, &b).settings;
    let names: Vec<&str> = settings.iter().map(|own| own.name.as_str()).collect();
    assert_eq!(names, ["backend", "max_num_batched_tokens", "overlap"]);
    assert_eq!(settings[2].of_a, None);
}

#[test]
fn captures_without_text_or_tokens_are_compared_by_their_digests() {
    let (a, _) = two();
    for redaction in [Redaction::Text, Redaction::Tokens] {
        let options = Options {
            redaction,
            overlap: false,
            ..Options::default()
        };
        let mut hidden = capture(&options);
        for (a, b) in [(&a, &hidden), (&hidden, &a), (&hidden, &hidden)] {
            let compared = both(a, b);
            assert_eq!(compared.first, None);
            let verdict = &compared.verdict;
            for stage in [Stage::Logits, Stage::Mask, Stage::Stop] {
                assert!(
                    verdict.at(stage).passes(),
                    "{redaction:?}: {:?}",
                    verdict.at(stage)
                );
            }
            let is_hidden = redaction == Redaction::Tokens;
            assert_eq!(verdict.at(Stage::Draw).is_unobserved(), is_hidden);
            assert_eq!(verdict.at(Stage::Detokenize).is_unobserved(), is_hidden);
        }
        let mut event = hidden.events.iter_mut();
        let digest = event.find_map(|own| match &mut own.1.news {
            News::Token { digest, .. } => Some(digest),
            _ => None,
        });
        *digest.expect("a token") = Digest(5);
        let stage = match redaction {
            Redaction::Tokens => Stage::Logits,
            _ => Stage::Verify,
        };
        check(&a, &hidden, stage);
    }
}
