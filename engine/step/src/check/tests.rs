//! One broken plan per rule, each refused by that rule's name.

use super::uses::Uses;
use crate::*;
use alloc::{collections::BTreeSet, vec, vec::Vec};
use core::cell::RefCell;
use proptest::{prelude::*, test_runner::TestRunner};

const LIMITS: BackendLimits = BackendLimits {
    vocab_size: 100,
    num_blocks: 16,
    num_rows: 16,
    seq_len_max: 256,
    query_tokens_max: 128,
};

fn seq(id: u64, start: u32, len: u32, first_block: u32, first_row: u32) -> SeqPlan {
    SeqPlan {
        seq: SeqId(id),
        start: Pos(start),
        query: (0..len)
            .map(|idx| QueryToken::Known(TokenId(idx % 100)))
            .collect(),
        num_drafts: 0,
        block_table: (0..(start + len).div_ceil(64))
            .map(|i| BlockId(first_block + i))
            .collect(),
        rows: RowPlan {
            read: (start > 0).then_some(RowId(first_row)),
            writes: vec![RowWrite {
                query_idx: len - 1,
                row: RowId(first_row + 1),
            }],
        },
        scored: vec![ScoredPosition {
            query_idx: len - 1,
            mask: None,
        }],
        sampling: SamplingParams::greedy(),
        counts: Vec::new(),
    }
}

fn plan(seqs: Vec<SeqPlan>) -> StepPlan {
    StepPlan {
        step: StepId(0),
        seqs,
        num_mask_rows: 0,
    }
}

fn good() -> StepPlan {
    plan(vec![seq(1, 0, 3, 0, 0), seq(2, 0, 70, 4, 4)])
}

#[track_caller]
fn refuses(rule: PlanRule, spoil: impl FnOnce(&mut StepPlan)) {
    let mut broken = good();
    spoil(&mut broken);
    assert_eq!(
        check_plan(&broken, &LIMITS).map_err(|error| error.rule),
        Err(rule)
    );
}

#[test]
fn a_good_plan_passes_and_survives_serialisation() {
    assert_eq!(check_plan(&good(), &LIMITS), Ok(()));
    let text = serde_json::to_string(&good()).expect("a plan is plain data");
    assert_eq!(
        serde_json::from_str::<StepPlan>(&text).expect("it reads back"),
        good()
    );
}

#[test]
fn each_rule_refuses_its_own_fault() {
    refuses(PlanRule::SeqsAscend, |p| p.seqs.swap(0, 1));
    refuses(PlanRule::SeqsAscend, |p| p.seqs[1].seq = SeqId(1));
    refuses(PlanRule::QuerySize, |p| p.seqs[0].query.clear());
    refuses(PlanRule::QuerySize, |p| p.seqs[0] = seq(1, 0, 129, 0, 0));
    refuses(PlanRule::SeqLen, |p| p.seqs[0] = seq(1, 254, 3, 0, 0));
    refuses(PlanRule::DraftSuffix, |p| p.seqs[0].num_drafts = 3);
    refuses(PlanRule::BlockTable, |p| p.seqs[1].block_table.truncate(1));
    refuses(PlanRule::BlockTable, |p| {
        p.seqs[1].block_table.push(BlockId(9))
    });
    refuses(PlanRule::BlockTable, |p| {
        p.seqs[1].block_table[1] = BlockId(4)
    });
    refuses(PlanRule::BlockTable, |p| {
        p.seqs[1].block_table[1] = BlockId(16)
    });
    refuses(PlanRule::WrittenBlockShared, |p| {
        p.seqs[1].block_table[1] = BlockId(0)
    });
    refuses(PlanRule::Rows, |p| p.seqs[0].rows.writes.clear());
    refuses(PlanRule::Rows, |p| p.seqs[0].rows.writes[0].query_idx = 1);
    refuses(PlanRule::Rows, |p| p.seqs[0].rows.writes[0].row = RowId(16));
    refuses(PlanRule::Rows, |p| p.seqs[0].rows.read = Some(RowId(9)));
    refuses(PlanRule::WrittenRowShared, |p| {
        p.seqs[0].rows.writes[0].row = RowId(5)
    });
    refuses(PlanRule::WrittenRowShared, |p| {
        p.seqs[0] = seq(1, 5, 3, 0, 0);
        p.seqs[0].rows.writes[0].row = RowId(0);
    });
    refuses(PlanRule::Scored, |p| p.seqs[0].scored[0].query_idx = 1);
    refuses(PlanRule::Scored, |p| p.seqs[0].scored[0].query_idx = 3);
    refuses(PlanRule::MaskRows, |p| p.num_mask_rows = 1);
    refuses(PlanRule::MaskRows, |p| {
        p.seqs[0].scored[0].mask = Some(MaskRow(0))
    });
    refuses(PlanRule::MaskRows, |p| {
        p.num_mask_rows = 1;
        p.seqs[0].scored[0].mask = Some(MaskRow(0));
        p.seqs[1].scored[0].mask = Some(MaskRow(0));
    });
    refuses(PlanRule::TokenRange, |p| {
        p.seqs[0].query[1] = QueryToken::Known(TokenId(100))
    });
}

#[test]
fn drafts_need_a_row_and_a_score_each() {
    let mut with_drafts = good();
    let drafting = &mut with_drafts.seqs[0];
    drafting.num_drafts = 2;
    drafting.rows.writes = (0..3)
        .map(|query_idx| RowWrite {
            query_idx,
            row: RowId(query_idx + 1),
        })
        .collect();
    drafting.scored = (0..3)
        .map(|query_idx| ScoredPosition {
            query_idx,
            mask: None,
        })
        .collect();
    assert_eq!(check_plan(&with_drafts, &LIMITS), Ok(()));
    let mut broken = with_drafts.clone();
    broken.seqs[0].rows.writes.remove(1);
    assert_eq!(
        check_plan(&broken, &LIMITS).map_err(|e| e.rule),
        Err(PlanRule::Rows)
    );
    let mut broken = with_drafts;
    broken.seqs[0].scored.remove(1);
    assert_eq!(
        check_plan(&broken, &LIMITS).map_err(|e| e.rule),
        Err(PlanRule::Scored)
    );
}

#[test]
fn the_ledger_knows_what_blocks_and_rows_hold() {
    let mut ledger = Ledger::new();
    let unwritten = plan(vec![seq(1, 3, 1, 0, 1)]);
    let error = ledger
        .admit(&unwritten, &LIMITS)
        .expect_err("nothing was written yet");
    assert_eq!(error.rule, PlanRule::RowLength);
    assert_eq!(
        ledger.admit(&plan(vec![seq(1, 0, 3, 0, 0)]), &LIMITS),
        Ok(())
    );
    assert_eq!(
        ledger.admit(&plan(vec![seq(1, 3, 1, 0, 1)]), &LIMITS),
        Ok(())
    );
    // The row holds 4 tokens now.
    let stale = ledger.admit(&plan(vec![seq(1, 3, 1, 0, 2)]), &LIMITS);
    assert_eq!(stale.map_err(|e| e.rule), Err(PlanRule::RowLength));
    let mut empty_block = plan(vec![seq(1, 4, 1, 7, 2)]);
    empty_block.seqs[0].rows.read = Some(RowId(2));
    let refused = ledger.admit(&empty_block, &LIMITS);
    assert_eq!(refused.map_err(|e| e.rule), Err(PlanRule::BlockFilled));
}

#[test]
fn a_row_is_read_with_the_tokens_that_it_saw_whoever_wrote_them() {
    let mut ledger = Ledger::new();
    // The same 64 tokens in two blocks, and others in a third.
    let mut other = seq(3, 0, 64, 2, 4);
    other.query[40] = QueryToken::Known(TokenId(99));
    let first = plan(vec![seq(1, 0, 64, 0, 0), seq(2, 0, 64, 1, 2), other]);
    let wide = BackendLimits {
        query_tokens_max: 256,
        ..LIMITS
    };
    assert_eq!(ledger.admit(&first, &wide), Ok(()));
    let reads = |block: u32, row: u32| {
        let mut next = seq(9, 64, 1, 8, row);
        next.block_table[0] = BlockId(block);
        next.rows.writes[0].row = RowId(15);
        ledger.clone().admit(&plan(vec![next]), &wide)
    };
    // Rows 1, 3 and 5 were written beside blocks 0, 1 and 2.
    for (block, row) in [(0, 1), (1, 3), (2, 5), (0, 3), (1, 1)] {
        assert_eq!(reads(block, row), Ok(()), "block {block}, row {row}");
    }
    for (block, row) in [(0, 5), (1, 5), (2, 1), (2, 3)] {
        let error = reads(block, row).expect_err("a state of other tokens");
        assert_eq!(error.rule, PlanRule::RowLength);
        assert!(error.detail.contains("at 40"), "{error}");
    }
}

#[test]
fn a_model_without_rows_is_given_none() {
    let limits = BackendLimits {
        num_rows: 0,
        ..LIMITS
    };
    let mut no_rows = plan(vec![seq(1, 5, 3, 0, 0)]);
    assert_eq!(
        check_plan(&no_rows, &limits).map_err(|e| e.rule),
        Err(PlanRule::Rows)
    );
    no_rows.seqs[0].rows = RowPlan::default();
    assert_eq!(check_plan(&no_rows, &limits), Ok(()));
}

/// Plans that are right but for what blocks and rows are named.
fn named_at_random() -> impl Strategy<Value = StepPlan> {
    let part = (0u32..130, 1u32..40).prop_flat_map(|(start, len)| {
        let needed = (start + len).div_ceil(64) as usize;
        let blocks = prop::collection::vec(0u32..12, needed);
        (Just((start, len)), blocks, 0u32..8, 0u32..8)
    });
    prop::collection::vec(part, 0..4).prop_map(|parts| {
        let seqs = (0..)
            .zip(parts)
            .map(|(id, ((start, len), blocks, read, written))| {
                let mut seq = seq(id, start, len, 0, read);
                seq.block_table = blocks.into_iter().map(BlockId).collect();
                seq.rows.writes[0].row = RowId(written);
                seq
            });
        plan(seqs.collect())
    })
}

/// The rules about names as they are worded, whatever it takes.
fn plainly_broken(plan: &StepPlan) -> Option<PlanRule> {
    let all_blocks = || plan.seqs.iter().flat_map(|seq| &seq.block_table);
    let rows = |seq: &SeqPlan| {
        let writes = seq.rows.writes.iter().map(|write| write.row);
        Vec::from_iter(seq.rows.read.into_iter().chain(writes))
    };
    let all_rows = Vec::from_iter(plan.seqs.iter().flat_map(rows));
    let twice = |seq: &SeqPlan| {
        let different: BTreeSet<BlockId> = seq.block_table.iter().copied().collect();
        different.len() < seq.block_table.len()
    };
    let writes_shared_block = |seq: &SeqPlan| {
        let mut written = seq.block_table[(seq.start.0 / 64) as usize..].iter();
        written.any(|block| all_blocks().filter(|&other| other == block).count() > 1)
    };
    let writes_shared_row = |seq: &SeqPlan| {
        let mut written = seq.rows.writes.iter();
        written.any(|write| all_rows.iter().filter(|&&row| row == write.row).count() > 1)
    };
    if plan.seqs.iter().any(twice) {
        Some(PlanRule::BlockTable)
    } else if plan.seqs.iter().any(writes_shared_block) {
        Some(PlanRule::WrittenBlockShared)
    } else if plan.seqs.iter().any(writes_shared_row) {
        Some(PlanRule::WrittenRowShared)
    } else {
        None
    }
}

#[test]
fn a_checker_that_saw_other_plans_finds_what_the_rules_say() {
    // Whatever was noted of one plan must not show in the next, so all go through the same one.
    let checker = RefCell::new(PlanChecker {
        blocks: Uses::late(1000),
        rows: Uses::late(2000),
        mask_rows: Vec::new(),
    });
    let seen = RefCell::new(BTreeSet::new());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(3000));
    let checked = runner.run(&named_at_random(), |plan| {
        let found = checker.borrow_mut().check(&plan, &LIMITS);
        prop_assert_eq!(&found, &check_plan(&plan, &LIMITS));
        let rule = found.err().map(|error| error.rule);
        prop_assert_eq!(rule, plainly_broken(&plan));
        seen.borrow_mut().insert(rule);
        Ok(())
    });
    checked.expect("the rules are the same");
    assert_eq!(seen.borrow().len(), 4, "each of the three, and none");
}
