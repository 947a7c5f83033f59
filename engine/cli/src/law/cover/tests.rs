//! Every combination that can occur does, none occurs that can't, and the same seed draws the same runs.

use super::*;
use std::collections::BTreeSet;

fn space(group_size: &dyn Fn(&[u8]) -> usize) -> Space<'_> {
    Space {
        num_values: vec![3, 9, 5, 3, 2, 4, 7],
        num_shared: 5,
        triples: vec![1, 2, 3, 5],
        forbidden: vec![
            vec![(0, 1), (1, 8)],
            vec![(0, 2), (1, 8)],
            vec![(1, 8), (2, 0), (4, 1)],
        ],
        group_size,
    }
}

fn runs(cover: &Cover) -> Vec<Vec<u8>> {
    let of_group = |group: &Group| -> Vec<Vec<u8>> {
        let members = group.members.iter();
        members
            .map(|member| [&group.shared[..], member].concat())
            .collect()
    };
    cover.groups.iter().flat_map(of_group).collect()
}

/// Counts the combinations of these axes that some run has, by looking at the runs alone.
fn seen(runs: &[Vec<u8>], axes: &[usize]) -> BTreeSet<Vec<u8>> {
    let of_run = |run: &Vec<u8>| axes.iter().map(|axis| run[*axis]).collect();
    runs.iter().map(of_run).collect()
}

#[test]
fn every_combination_that_can_occur_does() {
    let group_size = |shared: &[u8]| [1, 3, 8][usize::from(shared[3])];
    let space = space(&group_size);
    let cover = cover(&space, 5, 0);
    let runs = runs(&cover);
    assert!(runs.len() > 100);
    for run in &runs {
        assert!(
            run.iter()
                .zip(&space.num_values)
                .all(|(value, num)| usize::from(*value) < *num)
        );
        for rule in &space.forbidden {
            assert!(
                !rule.iter().all(|&(axis, value)| run[axis] == value),
                "{run:?}"
            );
        }
    }
    let product =
        |axes: &[usize]| -> usize { axes.iter().map(|axis| space.num_values[*axis]).product() };
    let (mut num_pairs, mut num_triples, mut num_impossible) = (0, 0, 0);
    for a in 0..7 {
        for b in a + 1..7 {
            let found = seen(&runs, &[a, b]).len();
            num_pairs += found;
            num_impossible += product(&[a, b]) - found;
        }
    }
    // (0, 1) with (1, 8), and (0, 2) with (1, 8).
    assert_eq!(num_impossible, 2);
    for (a, b, c) in [(1, 2, 3), (1, 2, 5), (1, 3, 5), (2, 3, 5)] {
        let found = seen(&runs, &[a, b, c]).len();
        assert_eq!(found, product(&[a, b, c]), "{a} {b} {c}");
        num_triples += found;
    }
    assert_eq!(
        (cover.num_pairs, cover.num_triples, cover.num_impossible),
        (num_pairs, num_triples, 2)
    );
}

#[test]
fn groups_have_the_size_they_ask_for() {
    let group_size = |shared: &[u8]| [1, 3, 8][usize::from(shared[3])];
    let cover = cover(&space(&group_size), 1, 0);
    for group in &cover.groups {
        assert_eq!(group.members.len(), group_size(&group.shared));
    }
}

#[test]
fn the_same_seed_draws_the_same_runs_and_more_runs_begin_with_fewer() {
    let group_size = |_: &[u8]| 4;
    let space = space(&group_size);
    let draw = |seed, num| cover(&space, seed, num);
    assert_eq!(draw(1, 0), draw(1, 0));
    assert_ne!(draw(1, 0).groups, draw(2, 0).groups);
    let (few, many) = (draw(1, 0), draw(1, 4000));
    assert!(many.groups.starts_with(&few.groups));
    assert!((4000..4004).contains(&runs(&many).len()));
    let shared = |groups: &[Group]| -> BTreeSet<Vec<u8>> {
        groups.iter().map(|group| group.shared.clone()).collect()
    };
    let more = &many.groups[few.groups.len()..];
    assert!(
        shared(more).len() > more.len() / 2,
        "any values, not the same ones"
    );
}

#[test]
fn what_no_run_can_have_is_found_through_other_axes() {
    // Whatever the third axis is, one of the rules is in the way of (0, 0) with (1, 0).
    let space = Space {
        num_values: vec![2, 2, 2],
        num_shared: 2,
        triples: Vec::new(),
        forbidden: vec![vec![(0, 0), (2, 0)], vec![(1, 0), (2, 1)]],
        group_size: &|_| 2,
    };
    let cover = cover(&space, 3, 0);
    assert_eq!(cover.num_impossible, 3);
    assert_eq!(cover.num_pairs, 12 - 3);
}
