//! Plans written by hand, right ones and wrong ones.

use super::*;
use lockstep_step::QueryToken;
use lockstep_step::{Digest, Draw, RowPlan, RowWrite, SamplingParams, ScoredPosition, SeqOutput};

/// A part that computes `known`, then `drafts`; it scores all from the last of `known` on.
fn part(seq: u64, start: u32, known: &[u32], drafts: &[u32], blocks: &[u32]) -> SeqPlan {
    let first = known.len() as u32 - 1;
    let tokens = known.iter().chain(drafts);
    let rows = 0..=drafts.len() as u32;
    SeqPlan {
        seq: SeqId(seq),
        start: Pos(start),
        query: tokens
            .map(|&token| QueryToken::Known(TokenId(token)))
            .collect(),
        num_drafts: drafts.len() as u32,
        block_table: blocks.iter().map(|&block| BlockId(block)).collect(),
        rows: RowPlan {
            read: None,
            writes: rows
                .map(|idx| RowWrite {
                    query_idx: first + idx,
                    row: RowId(100 * seq as u32 + start + idx),
                })
                .collect(),
        },
        scored: (first..first + 1 + drafts.len() as u32)
            .map(|query_idx| ScoredPosition {
                query_idx,
                mask: None,
            })
            .collect(),
        sampling: SamplingParams::greedy(),
        counts: Vec::new(),
    }
}

/// A run of these steps: parts, what each draws, and whether it is started ahead.
struct Script {
    steps: Vec<(StepPlan, StepOutput, bool)>,
    prompts: BTreeMap<SeqId, (Vec<TokenId>, String, Vec<u32>)>,
}

impl Script {
    fn new(prompts: &[(u64, u32)]) -> Script {
        let prompt = |len: u32| (0..len).map(TokenId).collect();
        let prompts = prompts.iter();
        Script {
            steps: Vec::new(),
            prompts: prompts
                .map(|&(seq, len)| (SeqId(seq), (prompt(len), String::new(), Vec::new())))
                .collect(),
        }
    }

    fn step(&mut self, parts: Vec<(SeqPlan, &[u32])>, is_ahead: bool) {
        let step = StepId(self.steps.len() as u64);
        let draw = |&token: &u32| Draw {
            token: TokenId(token),
            digest: Digest(0),
            logprobs: None,
        };
        let outputs = parts.iter().map(|(part, draws)| SeqOutput {
            seq: part.seq,
            draws: Ok(draws.iter().map(draw).collect()),
        });
        let output = StepOutput {
            step,
            seqs: outputs.collect(),
        };
        let plan = StepPlan {
            step,
            seqs: parts.into_iter().map(|(part, _)| part).collect(),
            num_mask_rows: 0,
        };
        self.steps.push((plan, output, is_ahead));
    }

    fn look(&self) -> Seen {
        let steps = self.steps.iter().map(|(plan, output, is_ahead)| Recorded {
            plan,
            filled: Some(&[]),
            output: Some(output),
            is_ahead: *is_ahead,
        });
        let asked = self
            .prompts
            .iter()
            .map(|(&seq, (prompt, salt, preempted))| {
                let asked = Asked {
                    prompt,
                    salt,
                    preempted: preempted.clone(),
                };
                (seq, asked)
            });
        reflect(&steps.collect::<Vec<_>>(), &asked.collect(), 100, true)
    }

    /// The stage that is blamed, and the step.
    fn blamed(&self) -> Option<(Blame, u64)> {
        let seen = self.look();
        assert!(seen.num_looked > 0);
        let first = seen.mistakes.first();
        first.map(|mistake| (mistake.blame, mistake.step.0))
    }
}

fn prompt(len: u32) -> Vec<u32> {
    (0..len).collect()
}

/// A prompt of three tokens, then two drafts of which the first is right: 3, then 7.
fn drafted() -> Script {
    let mut script = Script::new(&[(1, 3), (2, 70)]);
    script.step(vec![(part(1, 0, &prompt(3), &[], &[0]), &[3])], false);
    script.step(vec![(part(1, 3, &[3], &[4, 5], &[0]), &[4, 7])], false);
    script
}

#[test]
fn accepted_drafts_are_computed_and_the_others_are_not() {
    let mut script = drafted();
    let mut next = part(1, 5, &[7], &[], &[0]);
    // After the committed token and one draft.
    next.rows.read = Some(RowId(100 + 3 + 1));
    script.step(vec![(next, &[8])], false);
    assert_eq!(script.blamed(), None);
    let fates = script.look().fates;
    let fate = &fates[&(StepId(1), SeqId(1))];
    assert_eq!((fate.counts, fate.num_accepted), (true, 1));
    let tokens = [3, 4, 5].map(|token| Some(TokenId(token)));
    assert_eq!(fate.tokens, tokens);
}

#[test]
fn a_state_after_a_wrong_draft_is_a_mistake_of_speculation() {
    for (row, blamed) in [(103, true), (104, false), (105, true)] {
        let mut script = drafted();
        let mut next = part(1, 5, &[7], &[], &[0]);
        next.rows.read = Some(RowId(row));
        script.step(vec![(next, &[8])], false);
        let wanted = blamed.then_some((Blame::Speculation, 2));
        assert_eq!(script.blamed(), wanted, "row {row}");
    }
}

#[test]
fn a_start_behind_what_was_accepted_is_a_mistake_of_speculation() {
    let mut script = drafted();
    script.step(vec![(part(1, 6, &[7], &[], &[0]), &[8])], false);
    assert_eq!(script.blamed(), Some((Blame::Speculation, 2)));
}

#[test]
fn a_token_that_nobody_committed_is_a_mistake_of_overlap() {
    let mut script = drafted();
    script.step(vec![(part(1, 5, &[9], &[], &[0]), &[8])], false);
    assert_eq!(script.blamed(), Some((Blame::Overlap, 2)));
    // What an earlier step drew is known by now.
    let mut script = drafted();
    let mut stale = part(1, 5, &[7], &[], &[0]);
    stale.query[0] = QueryToken::Drawn {
        step: StepId(1),
        scored_idx: 1,
    };
    script.step(vec![(stale, &[8])], false);
    assert_eq!(script.blamed(), Some((Blame::Overlap, 2)));
}

#[test]
fn a_plan_ahead_takes_drafts_to_be_right_and_is_void_where_they_were_not() {
    let mut script = drafted();
    let mut ahead = part(1, 6, &[7], &[], &[0]);
    ahead.query[0] = QueryToken::Drawn {
        step: StepId(1),
        scored_idx: 2,
    };
    script.step(vec![(ahead, &[])], true);
    script.step(vec![(part(1, 5, &[7], &[], &[0]), &[8])], false);
    assert_eq!(script.blamed(), None);
    let fates = script.look().fates;
    assert!(!fates[&(StepId(2), SeqId(1))].counts);
    assert!(fates[&(StepId(3), SeqId(1))].counts);
}

#[test]
fn what_others_computed_is_found_under_the_same_tokens_and_salt_only() {
    let run = |len: u32, salt: &str| {
        let mut script = Script::new(&[(1, 66), (2, 70)]);
        if let Some(other) = script.prompts.get_mut(&SeqId(2)) {
            other.1 = salt.to_owned();
            other.0[..len as usize]
                .iter_mut()
                .for_each(|token| token.0 += 1);
        }
        script.step(vec![(part(1, 0, &prompt(66), &[], &[0, 1]), &[3])], false);
        let rest: Vec<u32> = (64..70).collect();
        script.step(vec![(part(2, 64, &rest, &[], &[0, 2]), &[3])], false);
        script.blamed()
    };
    assert_eq!(run(0, ""), None);
    assert_eq!(run(1, ""), Some((Blame::Cache, 1)));
    assert_eq!(run(0, "red"), Some((Blame::Cache, 1)));
}

#[test]
fn a_block_that_is_taken_from_its_holder_is_a_mistake_of_the_cache() {
    let mut script = drafted();
    if let Some(other) = script.prompts.get_mut(&SeqId(2)) {
        other.0.iter_mut().for_each(|token| token.0 += 1);
    }
    let others: Vec<u32> = (1..71).collect();
    script.step(vec![(part(2, 0, &others, &[], &[0, 1]), &[3])], false);
    script.step(vec![(part(1, 5, &[7], &[], &[0]), &[8])], false);
    assert_eq!(script.blamed(), Some((Blame::Cache, 3)));
}

#[test]
fn what_a_step_in_flight_names_is_not_written() {
    for (is_ahead, preempted, wanted) in [
        (false, None, None),
        (true, None, Some((Blame::Cache, 2))),
        (true, Some(3), Some((Blame::Overlap, 2))),
    ] {
        let mut script = drafted();
        if let Some(first) = script.prompts.get_mut(&SeqId(1)) {
            first.2.extend(preempted);
        }
        script.step(
            vec![(part(2, 0, &prompt(70), &[], &[0, 1]), &[3])],
            is_ahead,
        );
        assert_eq!(script.blamed(), wanted);
    }
}

#[test]
fn who_lost_its_blocks_begins_anew_with_what_it_had() {
    for (lost_at, wanted) in [(3, None), (1, Some((Blame::Overlap, 1)))] {
        let mut script = drafted();
        if let Some(first) = script.prompts.get_mut(&SeqId(1)) {
            first.2.push(lost_at);
        }
        let all = [0, 1, 2, 3, 4, 7];
        script.step(vec![(part(1, 0, &all, &[], &[5]), &[8])], false);
        script.step(vec![(part(1, 6, &[8], &[], &[5]), &[9])], false);
        assert_eq!(script.blamed(), wanted);
    }
    let mut script = drafted();
    script.step(
        vec![(part(1, 0, &[0, 1, 2, 3, 4, 7], &[], &[5]), &[8])],
        false,
    );
    script.step(vec![(part(1, 6, &[8], &[], &[5]), &[9])], false);
    assert_eq!(
        script.blamed(),
        Some((Blame::Overlap, 2)),
        "nobody took its blocks"
    );
}

#[test]
fn a_step_has_no_more_tokens_than_it_may() {
    let mut script = Script::new(&[(1, 3), (2, 120)]);
    script.step(vec![(part(1, 0, &prompt(3), &[], &[0]), &[3])], false);
    script.step(vec![(part(1, 3, &[3], &[], &[0]), &[3])], false);
    script.step(vec![(part(2, 0, &prompt(120), &[], &[1, 2]), &[3])], false);
    assert_eq!(script.blamed(), Some((Blame::Overlap, 2)));
}
