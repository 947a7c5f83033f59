//! Counts against a naive count, expressions against what they say, and a relation that was planted.

use super::*;
use crate::replay::plans;
use crate::{
    ExpressionError, Fact, News, Place, Predicate, Share, Table, TabulateError, Tabulated,
    Tabulation, Unit, Why, replay,
};
use lockstep_step::{SeqId, SeqPlan, StepId};
use std::collections::{BTreeMap, BTreeSet};

fn tabulate(
    captures: &[(Capture, Option<Vec<Place>>)],
    defect: &str,
    by: &[&str],
    unit: Unit,
) -> Result<Tabulated, TabulateError> {
    let predicate = |text: &str| text.parse::<Predicate>().expect(text);
    let by = by.iter().map(|text| predicate(text)).collect();
    let mut tabulation = Tabulation::new(predicate(defect), by, unit);
    for (capture, places) in captures {
        tabulation.add(capture, places.as_deref())?;
    }
    tabulation.finish()
}

/// A part that counts, as plainly as it can be had.
struct Plain<'a> {
    capture: &'a Capture,
    plan: &'a SeqPlan,
    num_accepted: usize,
    previous_num_accepted: usize,
    finish: &'static str,
    is_ahead: bool,
}

fn plain(capture: &Capture) -> Vec<Plain<'_>> {
    let fates = plans::fates(capture).fates;
    let mut accepted: BTreeMap<SeqId, usize> = BTreeMap::new();
    let mut parts = Vec::new();
    for (id, step) in &capture.steps {
        for plan in &step.plan.seqs {
            let Some(fate) = fates.get(&(*id, plan.seq)).filter(|own| own.counts) else {
                continue;
            };
            let (mut num_told, mut finish) = (0, None);
            for (step, news) in capture.events_of(plan.seq) {
                match news {
                    News::Token { .. } if step == Some(*id) => num_told += 1,
                    News::Finished(finished) => finish = Some((step, finished.why.name())),
                    _ => {}
                }
            }
            if finish.is_some_and(|(step, _)| step < Some(*id)) {
                continue;
            }
            let num_accepted = fate.num_accepted.min(num_told);
            parts.push(Plain {
                capture,
                plan,
                num_accepted,
                previous_num_accepted: accepted.insert(plan.seq, num_accepted).unwrap_or(0),
                finish: finish.map_or("open", |own| own.1),
                is_ahead: step.is_ahead,
            });
        }
    }
    parts
}

type Holds = fn(&Plain<'_>) -> bool;

/// Expressions, and what they say.
const SAID: [(&str, Holds); 9] = [
    ("num_drafts = 0", |own| own.plan.num_drafts == 0),
    ("num_drafts<num_accepted or not num_accepted != 0", |own| {
        own.num_accepted == 0
    }),
    ("shorter", |own| {
        own.previous_num_accepted > own.plan.num_drafts as usize
    }),
    ("previous_num_accepted > num_drafts", |own| {
        (own.plan.num_drafts as usize) < own.previous_num_accepted
    }),
    ("finish = length and start >= prompt_len", |own| {
        let prompt = &own.capture.requests[&own.plan.seq].prompt;
        own.finish == "length" && own.plan.start.0 as usize >= prompt.len()
    }),
    ("finish != length", |own| own.finish != "length"),
    ("is_ahead = false and (query_len > 2 or has_rows)", |own| {
        let rows = &own.plan.rows;
        let has_rows = rows.read.is_some() || !rows.writes.is_empty();
        !own.is_ahead && (own.plan.query.len() > 2 || has_rows)
    }),
    ("num_mask_rows > masks_left_out", |own| {
        let step = own.capture.steps.values();
        let mut own_step = step.filter(|step| {
            step.plan
                .seqs
                .iter()
                .any(|own_| std::ptr::eq(own_, own.plan))
        });
        let masks = own_step.next().and_then(|step| step.masks.as_ref());
        let rows = own.plan.scored.iter().filter_map(|scored| scored.mask);
        rows.into_iter()
            .any(|row| masks.is_some_and(|own| own[row.0 as usize].is_some()))
    }),
    ("temperature <= 800", |own| {
        own.capture.requests[&own.plan.seq].sampling.temperature <= 0.8
    }),
];

fn naive(rows: &[(bool, bool)]) -> Table {
    let share = |wanted: bool| Share {
        num_defects: rows.iter().filter(|own| own.1 == wanted && own.0).count() as u64,
        num: rows.iter().filter(|own| own.1 == wanted).count() as u64,
    };
    Table {
        holds: share(true),
        otherwise: share(false),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn counts_are_those_of_a_naive_count(
        options in options(),
        defect in 0..SAID.len(),
        by in 0..SAID.len(),
    ) {
        let captures = [(capture(&options), None)];
        let parts = plain(&captures[0].0);
        let of = |own: &Plain<'_>| (SAID[defect].1(own), SAID[by].1(own));
        let rows: Vec<(bool, bool)> = parts.iter().map(of).collect();
        let (defect, by) = (SAID[defect].0, [SAID[by].0]);
        let counted = tabulate(&captures, defect, &by, Unit::Part).expect("parts");
        prop_assert_eq!(counted.tables, [naive(&rows)]);
        let mut requests: BTreeMap<SeqId, (bool, bool)> = BTreeMap::new();
        for (part, row) in parts.iter().zip(&rows) {
            let any = requests.entry(part.plan.seq).or_default();
            *any = (any.0 || row.0, any.1 || row.1);
        }
        let rows: Vec<(bool, bool)> = requests.into_values().collect();
        let counted = tabulate(&captures, defect, &by, Unit::Request).expect("requests");
        prop_assert_eq!(counted.tables, [naive(&rows)]);
        prop_assert_eq!(counted.all.num, captures[0].0.requests.len() as u64);
        prop_assert_eq!(counted.num_without_parts, 0);
    }

    #[test]
    fn parts_that_draw_are_those_of_which_readers_were_told(options in options()) {
        let capture = capture(&options);
        let tokens = capture.events.iter().filter_map(|(step, event)| match event.news {
            News::Token { .. } => Some((*step, event.seq)),
            _ => None,
        });
        let told: BTreeSet<(Option<StepId>, SeqId)> = tokens.collect();
        let counted = tabulate(&[(capture, None)], "num_drawn > 0", &[], Unit::Part);
        prop_assert_eq!(counted.expect("parts").all.num_defects, told.len() as u64);
    }

    #[test]
    fn an_expression_comes_to_what_it_says((text, value) in written()) {
        let captures = [(capture(&Options { num_requests: 1, ..Options::default() }), None)];
        let counted = tabulate(&captures, &text, &[], Unit::Part).expect("parts").all;
        prop_assert_eq!(counted.num_defects, if value { counted.num } else { 0 });
    }

    #[test]
    fn any_text_is_read_or_refused(
        text in "[a-z_()<>=!0-9 äß-]{0,40}",
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..12),
    ) {
        for text in [text, words.join(" ")] {
            if let Err(error) = text.parse::<Predicate>() {
                prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{error}");
            }
        }
    }
}

/// What expressions are made of.
const WORDS: [&str; 13] = [
    "not",
    "and",
    "or",
    "(",
    ")",
    "=",
    "<",
    "num_drafts",
    "finish",
    "length",
    "is_ahead",
    "true",
    "3",
];

/// An expression without facts, and what it comes to.
fn written() -> impl Strategy<Value = (String, bool)> {
    let signs = prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let leaf = (-2i64..3, signs, -2i64..3).prop_map(|(left, sign, right)| {
        let value = match sign {
            "=" => left == right,
            "!=" => left != right,
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            _ => left >= right,
        };
        (format!("{left} {sign} {right}"), value)
    });
    leaf.prop_recursive(4, 24, 3, |inner| {
        let some = prop::collection::vec(inner.clone(), 2..4);
        let both = |all: Vec<(String, bool)>, word: &str| {
            let texts: Vec<String> = all.into_iter().map(|own| format!("({})", own.0)).collect();
            texts.join(word)
        };
        prop_oneof![
            inner.prop_map(|(text, value)| (format!("not ({text})"), !value)),
            some.clone().prop_map(move |all| {
                let value = all.iter().all(|own| own.1);
                (both(all, " and "), value)
            }),
            some.prop_map(move |all| {
                let value = all.iter().any(|own| own.1);
                (both(all, " or "), value)
            }),
        ]
    })
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    let captures = [(capture(&Options::default()), None)];
    for (text, value) in [
        ("1 = 1 or 1 = 2 and 1 = 2", true),
        ("(1 = 1 or 1 = 2) and 1 = 2", false),
        ("not 1 = 1 or 1 = 1", true),
        ("not (1 = 1 or 1 = 1)", false),
        ("not not 1=1", true),
    ] {
        let counted = tabulate(&captures, text, &[], Unit::Part)
            .expect("parts")
            .all;
        assert_eq!(counted.num_defects == counted.num, value, "{text}");
    }
}

#[test]
fn what_does_not_fit_is_refused_where_it_is() {
    for (text, column, expected, found) in [
        ("", 1, "a fact, a number", "the end"),
        (
            "num_draft > 1",
            1,
            "one of the facts step, num_seqs",
            "`num_draft`",
        ),
        ("num_drafts", 11, "= != < <=", "the end"),
        ("num_drafts == 1", 12, "one of = !=", "`==`"),
        (
            "num_drafts > length",
            14,
            "a number or one of the facts",
            "`length`",
        ),
        ("num_drafts > is_ahead", 14, "a whole number", "`is_ahead`"),
        ("num_drafts > 1x", 14, "a whole number", "`1x`"),
        (
            "num_drafts > 99999999999999999999",
            14,
            "a whole number",
            "`9999",
        ),
        ("finish", 7, "= or != after finish", "the end"),
        ("finish < length", 8, "= or != after finish", "`<`"),
        (
            "finish = lenght",
            10,
            "end_token, stop_string, length",
            "`lenght`",
        ),
        ("error = malformed", 9, "malformed_call", "`malformed`"),
        ("is_ahead > 1", 10, "= or != after is_ahead", "`>`"),
        ("is_ahead = 1", 12, "one of true, false", "`1`"),
        (
            "is_ahead is_first",
            10,
            "`and`, `or` or the end",
            "`is_first`",
        ),
        ("(is_ahead", 10, "`and`, `or` or `)`", "the end"),
        ("is_ahead)", 9, "the end", "`)`"),
        ("is_ahead and", 13, "a fact, a number", "the end"),
        ("is_ahead and or", 14, "a fact, a number", "`or`"),
        (
            "is_ahead & is_first",
            10,
            "a comparison or a parenthesis",
            "`&`",
        ),
        ("ü", 1, "a fact", "`ü`"),
    ] {
        let error: ExpressionError = text.parse::<Predicate>().expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
        assert!(error.found.starts_with(found), "{text}: {error}");
    }
    let deep = format!("{}is_ahead{}", "(".repeat(100), ")".repeat(100));
    let error = deep.parse::<Predicate>().expect_err("too deep");
    assert_eq!(error.column, 65);
    let long = vec!["is_ahead"; 20_000].join(" or ");
    assert!(long.parse::<Predicate>().is_ok());
}

#[test]
fn each_fact_has_its_own_name() {
    let names: BTreeSet<&str> = Fact::ALL.iter().map(|own| own.1).collect();
    assert_eq!(names.len(), Fact::ALL.len());
    for (fact, name, _) in Fact::ALL {
        assert_eq!(fact.to_string(), name);
    }
}

#[test]
fn what_is_not_known_is_an_error_even_where_it_would_not_matter() {
    let sound = capture(&Options::default());
    let unknown = |capture: &Capture, places: Option<Vec<Place>>, text: &str| {
        let captures = [(capture.clone(), places)];
        match tabulate(&captures, text, &[], Unit::Part) {
            Err(TabulateError::Unknown { fact, why, .. }) => (fact.to_string(), why),
            other => panic!("{text}: {other:?}"),
        }
    };
    for fact in ["logits_differ", "mask_differs", "draw_differs"] {
        let (found, why) = unknown(&sound, None, &format!("1 = 1 or {fact}"));
        assert_eq!(found, fact);
        assert!(why.contains("replay"), "{why}");
    }
    // A replay that did not come to it knows nothing of it.
    let (_, why) = unknown(&sound, Some(Vec::new()), "logits_differ");
    assert!(why.contains("did not come to it"), "{why}");
    let mut part = sound.clone();
    part.header.is_whole = false;
    assert_eq!(unknown(&part, None, "num_seqs > 2").0, "num_seqs");
    let options = Options {
        redaction: Redaction::Text,
        ..Options::default()
    };
    let hidden = capture(&options);
    let places = places(&hidden);
    assert_eq!(
        unknown(&hidden, Some(places.clone()), "mask_differs").0,
        "mask_differs"
    );
    let counted = tabulate(&[(hidden, Some(places))], "logits_differ", &[], Unit::Part);
    assert_eq!(counted.expect("parts").all.num_defects, 0);
    let options = Options {
        redaction: Redaction::Tokens,
        ..Options::default()
    };
    let counted = tabulate(&[(capture(&options), None)], "is_ahead", &[], Unit::Part);
    assert_eq!(counted, Err(TabulateError::TokensLeftOut));
}

#[test]
fn nothing_to_count_is_an_error() {
    let mut empty = capture(&Options::default());
    empty.steps.clear();
    for unit in [Unit::Part, Unit::Request] {
        let counted = tabulate(&[(empty.clone(), None)], "is_ahead", &[], unit);
        assert_eq!(counted, Err(TabulateError::NoPart));
    }
}

fn places(capture: &Capture) -> Vec<Place> {
    let limits = BackendLimits {
        num_rows: 64,
        ..limits()
    };
    let witness = Witness {
        backend: Fingerprint::new(model(limits)),
        vocabulary: vocabulary(),
        matcher: &matcher,
        response: &|_, _| None,
        num_seqs: 4,
        progress: &|_, _| {},
    };
    replay(capture, witness).expect("it can be replayed").places
}

#[test]
fn a_planted_relation_is_found_and_another_is_not() {
    let captures: Vec<(Capture, Option<Vec<Place>>)> = (1..9)
        .map(|seed| {
            let options = Options {
                seed,
                num_requests: 8,
                ..Options::default()
            };
            let mut capture = capture(&options);
            plant(&mut capture);
            let places = places(&capture);
            (capture, Some(places))
        })
        .collect();
    let by = [
        "previous_num_accepted > num_drafts and num_drawn > 0",
        "temperature > 900",
    ];
    let counted = tabulate(&captures, "logits_differ", &by, Unit::Part).expect("parts");
    let [related, other] = &counted.tables[..] else {
        panic!("two tables");
    };
    assert!(related.holds.num >= 10, "{related:?}");
    assert_eq!(related.holds.num_defects, related.holds.num);
    assert_eq!(related.otherwise.num_defects, 0);
    assert!(related.otherwise.num > 100, "{related:?}");
    // Of the other both kinds have some.
    let rate = |share: Share| share.num_defects as f64 / share.num as f64;
    assert!(
        rate(other.holds) < 0.3 && rate(other.otherwise) < 0.3,
        "{other:?}"
    );
    assert!(
        other.holds.num_defects > 0 && other.otherwise.num_defects > 0,
        "{other:?}"
    );
}

/// Every step that verifies less than was accepted before it computes other logits.
fn plant(capture: &mut Capture) {
    let fates = plans::fates(capture).fates;
    let mut accepted: BTreeMap<SeqId, usize> = BTreeMap::new();
    for (id, step) in &mut capture.steps {
        let Some(Ok(output)) = &mut step.output else {
            continue;
        };
        for (part, answer) in step.plan.seqs.iter().zip(&mut output.seqs) {
            let Some(fate) = fates.get(&(*id, part.seq)).filter(|own| own.counts) else {
                continue;
            };
            let before = accepted.insert(part.seq, fate.num_accepted).unwrap_or(0);
            if before > part.num_drafts as usize
                && let Ok(draws) = &mut answer.draws
                && let Some(draw) = draws.first_mut()
            {
                draw.digest.0 ^= 1 << 20;
            }
        }
    }
}

#[test]
fn finishes_and_errors_are_asked_for_by_name() {
    let mut capture = capture(&Options::default());
    let mut ends = capture
        .events
        .iter_mut()
        .filter_map(|(_, event)| match &mut event.news {
            News::Finished(finished) => Some(finished),
            _ => None,
        });
    let text = crate::Text::Plain(Vec::new());
    ends.next().expect("an end").why = Why::Error("malformed_call".to_string(), text);
    ends.next().expect("an end").why = Why::Aborted;
    let by = [
        "finish = error",
        "error = malformed_call",
        "error = none",
        "finish = aborted",
    ];
    let counted = tabulate(&[(capture, None)], "is_last", &by, Unit::Request).expect("requests");
    let nums: Vec<u64> = counted.tables.iter().map(|own| own.holds.num).collect();
    assert_eq!(nums, [1, 1, 5, 1]);
    assert_eq!(
        counted.all,
        Share {
            num_defects: 6,
            num: 6
        }
    );
}

#[test]
fn parts_after_a_wrong_plan_are_still_counted() {
    let sound = capture(&Options::default());
    let num = |capture: &Capture| {
        let counted = tabulate(&[(capture.clone(), None)], "is_ahead", &[], Unit::Part);
        counted.expect("parts")
    };
    let all = num(&sound);
    assert_eq!(all.wrong_plans.len(), 0);
    let mut other = sound.clone();
    let mut steps = other.steps.values_mut();
    let part = steps.find_map(|step| {
        step.plan
            .seqs
            .iter_mut()
            .find(|own| own.rows.read.is_some())
    });
    let row = &mut part.expect("a row is read").rows.read;
    *row = row.map(|row| lockstep_step::RowId((row.0 + 1) % 96));
    let counted = num(&other);
    assert_eq!(counted.wrong_plans.len(), 1);
    assert_eq!(counted.all, all.all);
}
