//! The search against predicates of every kind: what it finds is held against brute force.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    repeats: 2,
    exhaustive_max: 1 << 20,
    stop_at_unjudged: false,
};

/// Runs a search to its end; also the sets that were asked for, in order.
fn run(
    num: usize,
    limits: Limits,
    judge: &mut dyn FnMut(&Subset, usize) -> Verdict,
) -> (Outcome, Vec<Subset>) {
    let mut search = Search::new(num, limits);
    let mut asked: Vec<Subset> = Vec::new();
    loop {
        match search.step() {
            Step::Done(outcome) => return (outcome, asked),
            Step::Try(subset, _) => {
                let num_before = asked.iter().filter(|before| **before == subset).count();
                assert!(num_before < limits.repeats, "asked too often: {subset:?}");
                let verdict = judge(&subset, num_before);
                asked.push(subset.clone());
                search.tell(subset, verdict);
            }
        }
    }
}

fn found(outcome: Outcome) -> Found {
    match outcome {
        Outcome::Found(found) => found,
        other => panic!("{other:?}"),
    }
}

fn subset(mask: usize) -> Subset {
    (0..usize::BITS as usize)
        .filter(|bit| mask >> bit & 1 == 1)
        .collect()
}

fn mask(subset: &Subset) -> usize {
    subset.iter().map(|idx| 1 << idx).sum()
}

fn is_bad_to_verdict(is_bad: bool) -> Verdict {
    match is_bad {
        true => Verdict::Bad,
        false => Verdict::Good,
    }
}

/// Verdicts of every set of `num` differences, the ends being what they are called.
fn verdicts(num: usize) -> impl Strategy<Value = Vec<Verdict>> {
    let one = prop_oneof![
        4 => Just(Verdict::Good),
        2 => Just(Verdict::Bad),
        1 => Just(Verdict::Unjudged)
    ];
    proptest::collection::vec(one, 1 << num).prop_map(|mut table| {
        table[0] = Verdict::Good;
        *table.last_mut().expect("two at least") = Verdict::Bad;
        table
    })
}

/// Whatever the table says, what is claimed is true.
fn check_claims(num: usize, limits: Limits, table: &[Verdict]) -> Found {
    let (outcome, _) = run(num, limits, &mut |set, _| table[mask(set)]);
    let found = found(outcome);
    assert_eq!(table[mask(&found.set)], Verdict::Bad);
    for idx in &found.set {
        let verdict = table[mask(&found.set) & !(1 << idx)];
        let expected = match found.unjudged_without.contains(idx) {
            true => Verdict::Unjudged,
            false => Verdict::Good,
        };
        assert_eq!(verdict, expected, "{found:?} without {idx}");
    }
    let smaller =
        |size: usize| (0..1 << num).filter(move |mask: &usize| (mask.count_ones() as usize) < size);
    match &found.smaller {
        Smaller::AllGood => {
            assert!(smaller(found.set.len()).all(|mask| table[mask] == Verdict::Good));
        }
        Smaller::SomeUnjudged(open) => {
            for mask in smaller(found.set.len()) {
                let expected = match open.contains(&subset(mask)) {
                    true => Verdict::Unjudged,
                    false => Verdict::Good,
                };
                assert_eq!(table[mask], expected);
            }
        }
        Smaller::TooMany { below, needed } => {
            assert!(*needed > limits.exhaustive_max && *below < found.set.len());
            assert!(smaller(*below).all(|mask| table[mask] != Verdict::Bad));
        }
    }
    found
}

proptest! {
    #[test]
    fn claims_are_true_of_any_predicate(
        (num, table) in (1_usize..7).prop_flat_map(|num| (Just(num), verdicts(num))),
        exhaustive_max in prop_oneof![Just(0_u64), 1_u64..40, Just(1 << 20)],
    ) {
        check_claims(num, Limits { exhaustive_max, ..LIMITS }, &table);
    }

    #[test]
    fn the_smallest_of_monotone_causes_is_found(
        num in 1_usize..8,
        causes in proptest::collection::vec(1_usize..128, 1..4),
    ) {
        // Bad is whatever holds one of the causes.
        let full = (1 << num) - 1;
        let causes: Vec<usize> = causes.iter().map(|cause| (cause & full).max(1)).collect();
        let is_bad = |mask: usize| causes.iter().any(|cause| mask & cause == *cause);
        let table: Vec<Verdict> =
            (0..=full).map(|mask| is_bad_to_verdict(is_bad(mask))).collect();
        let found = check_claims(num, LIMITS, &table);
        let least = causes.iter().map(|cause| cause.count_ones()).min();
        prop_assert_eq!(Some(found.set.len() as u32), least);
        prop_assert_eq!(found.smaller, Smaller::AllGood);
    }

    #[test]
    fn one_cause_among_many_is_found_in_few_trials(
        num in 2_usize..200,
        picked in proptest::collection::btree_set(0_usize..200, 1..4),
    ) {
        let cause: Subset = picked.iter().map(|idx| idx % num).collect();
        let limits = Limits { exhaustive_max: 0, ..LIMITS };
        let (outcome, asked) =
            run(num, limits, &mut |set, _| is_bad_to_verdict(cause.is_subset(set)));
        prop_assert_eq!(found(outcome).set, cause.clone());
        // The bound of ddmin is quadratic in the cause and logarithmic in the rest.
        let log = num.ilog2() as usize + 1;
        let bound = 4 * cause.len() * (cause.len() + 1) * (log + 1) + 8;
        prop_assert!(asked.len() <= bound, "{} trials, {bound} at most", asked.len());
    }
}

#[test]
fn ends_that_are_not_what_they_are_called() {
    use Verdict::{Bad, Good, Unjudged};
    let all = subset(0b111);
    // By turns: good, bad, good, bad.
    let rows: &[([Verdict; 4], Outcome)] = &[
        ([Bad, Bad, Bad, Bad], Outcome::GoodIsBad { swapped: false }),
        ([Bad, Good, Bad, Good], Outcome::GoodIsBad { swapped: true }),
        ([Good, Good, Good, Good], Outcome::BadIsGood),
        ([Good, Bad, Bad, Bad], Outcome::Unstable(Subset::new())),
        ([Bad, Good, Good, Good], Outcome::Unstable(Subset::new())),
        ([Good, Bad, Good, Good], Outcome::Unstable(all.clone())),
        ([Unjudged; 4], Outcome::Unjudged(Subset::new())),
        ([Good, Unjudged, Good, Bad], Outcome::Unjudged(all)),
    ];
    for (told, expected) in rows {
        let mut told_so_far = told.iter();
        let (outcome, _) = run(3, LIMITS, &mut |_, _| *told_so_far.next().expect("four"));
        assert_eq!(outcome, *expected, "{told:?}");
    }
}

#[test]
fn what_is_found_has_to_stay() {
    // The set {1} is bad the first time only.
    let (outcome, _) = run(4, LIMITS, &mut |set, num_before| {
        let has_cause = set.contains(&1);
        is_bad_to_verdict(has_cause && (set.len() > 1 || num_before == 0))
    });
    assert_eq!(outcome, Outcome::Unstable(subset(0b10)));
    // Of {0, 1}, the half {1} is good the first time only.
    let (outcome, _) = run(2, LIMITS, &mut |set, num_before| {
        is_bad_to_verdict(set.len() == 2 || (set.contains(&1) && num_before == 1))
    });
    assert_eq!(outcome, Outcome::Unstable(subset(0b10)));
}

#[test]
fn what_can_not_be_judged_stops_where_that_is_wanted() {
    let mut judge = |set: &Subset, _| match set.len() {
        0 => Verdict::Good,
        3 => Verdict::Bad,
        _ => Verdict::Unjudged,
    };
    let (outcome, _) = run(3, LIMITS, &mut judge);
    let found = found(outcome);
    assert_eq!((found.set.len(), found.unjudged_without.len()), (3, 3));
    assert!(matches!(found.smaller, Smaller::SomeUnjudged(open) if open.len() == 6));
    let stop = Limits {
        stop_at_unjudged: true,
        ..LIMITS
    };
    let (outcome, asked) = run(3, stop, &mut judge);
    assert!(matches!(outcome, Outcome::Unjudged(set) if set.len() < 3));
    assert_eq!(asked.len(), 5);
}

#[test]
fn a_smaller_set_that_ddmin_misses_is_found() {
    // ddmin meets the half {0, 1} first; {3} alone does too, but only where {2} is not.
    let table: Vec<Verdict> = (0..16)
        .map(|mask| is_bad_to_verdict(mask == 0b1111 || mask == 0b0011 || mask == 0b1000))
        .collect();
    let limits = Limits {
        exhaustive_max: 3,
        ..LIMITS
    };
    let missed = check_claims(4, limits, &table);
    assert_eq!(missed.set, subset(0b0011));
    let all = Smaller::TooMany {
        below: 1,
        needed: 4,
    };
    assert_eq!(missed.smaller, all);
    let smallest = check_claims(4, LIMITS, &table);
    assert_eq!(smallest.set, subset(0b1000));
    assert_eq!(smallest.smaller, Smaller::AllGood);
}

#[test]
fn combinations_are_counted_and_complete() {
    for num in 1..9 {
        for size in 1..=num {
            let mut indices: Vec<usize> = (0..size).collect();
            let mut seen = BTreeSet::from([indices.clone()]);
            while next_combination(&mut indices, num) {
                assert!(indices.is_sorted() && *indices.last().expect("one") < num);
                assert!(seen.insert(indices.clone()), "{indices:?} twice");
            }
            assert_eq!(seen.len() as u64, choose(num, size), "{size} of {num}");
        }
    }
    assert_eq!(choose(400, 200), u64::MAX);
}
