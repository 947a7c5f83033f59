//! The model sees every slot and every row that a plan names, and nothing else.

use super::*;
use lockstep_step::{
    BlockId, Pos, QueryToken, RowId, RowPlan, RowWrite, SamplingParams, ScoredPosition, SeqError,
    SeqId, SeqPlan, StepId,
};

const LIMITS: BackendLimits = BackendLimits {
    vocab_size: 64,
    num_blocks: 8,
    num_rows: 8,
    seq_len_max: 256,
    query_tokens_max: 256,
};

fn part(start: u32, query: &[QueryToken], blocks: &[u32], read: u32, write: u32) -> SeqPlan {
    let last = query.len() as u32 - 1;
    SeqPlan {
        seq: SeqId(1),
        start: Pos(start),
        query: query.to_vec(),
        num_drafts: 0,
        block_table: blocks.iter().map(|&block| BlockId(block)).collect(),
        rows: RowPlan {
            read: (start > 0).then_some(RowId(read)),
            writes: vec![RowWrite {
                query_idx: last,
                row: RowId(write),
            }],
        },
        scored: vec![ScoredPosition {
            query_idx: last,
            mask: None,
        }],
        sampling: SamplingParams::greedy(),
        counts: vec![],
    }
}

fn known(tokens: impl IntoIterator<Item = u32>) -> Vec<QueryToken> {
    let tokens = tokens.into_iter();
    tokens
        .map(|token| QueryToken::Known(TokenId(token)))
        .collect()
}

fn run(
    backend: &mut Fingerprint,
    step: u64,
    seq: SeqPlan,
) -> Result<Vec<lockstep_step::Draw>, SeqError> {
    let plan = StepPlan {
        step: StepId(step),
        seqs: vec![seq],
        num_mask_rows: 0,
    };
    let forward = backend.forward(&plan).expect("the plan is right");
    let mut output = backend
        .sample(forward, &MaskSet::default())
        .expect("it samples");
    output.seqs.remove(0).draws
}

fn model() -> Fingerprint {
    Fingerprint::new(FingerprintConfig::new(LIMITS))
}

#[test]
fn cutting_a_query_changes_nothing_and_a_stale_row_or_a_swapped_block_changes_all() {
    let whole =
        run(&mut model(), 0, part(0, &known(0..64), &[3], 0, 1)).map(|mut draws| draws.remove(0));
    let cut = |spoil: fn(&mut SeqPlan)| {
        let mut backend = model();
        run(&mut backend, 0, part(0, &known(9..49), &[5], 0, 5)).expect("another sequence's");
        run(&mut backend, 1, part(0, &known(0..40), &[2], 0, 4)).expect("the first part");
        let mut rest = part(40, &known(40..64), &[2], 4, 6);
        spoil(&mut rest);
        run(&mut backend, 2, rest).map(|mut draws| draws.remove(0))
    };
    assert_eq!(cut(|_| {}), whole);
    let stale_row = cut(|rest| rest.rows.read = Some(RowId(5)));
    let wrong_block = cut(|rest| rest.block_table[0] = BlockId(5));
    for spoiled in [stale_row, wrong_block] {
        assert_ne!(
            spoiled.map(|draw| draw.digest),
            whole.clone().map(|draw| draw.digest)
        );
    }
}

#[test]
fn a_drawn_token_is_resolved_and_an_unknown_one_is_its_sequences_error() {
    let mut backend = model();
    let first = run(&mut backend, 0, part(0, &known(0..4), &[0], 0, 0)).expect("it draws")[0].token;
    let drawn = QueryToken::Drawn {
        step: StepId(0),
        scored_idx: 0,
    };
    let by_reference = run(&mut backend, 1, part(4, &[drawn], &[0], 0, 1));
    let by_value = run(&mut backend, 2, part(4, &known([first.0]), &[0], 0, 2));
    assert_eq!(by_reference, by_value);
    let never = QueryToken::Drawn {
        step: StepId(0),
        scored_idx: 1,
    };
    let refused = run(&mut backend, 3, part(4, &[never], &[0], 0, 3));
    assert!(matches!(refused, Err(SeqError::Refused(_))), "{refused:?}");
}

#[test]
fn poison_is_an_error_of_its_sequence_and_scripts_are_followed() {
    let mut config = FingerprintConfig::new(LIMITS);
    config.poison = Some(TokenId(60));
    config.scripts = vec![Script {
        when: vec![TokenId(2), TokenId(3)],
        output: vec![TokenId(33), TokenId(44)],
    }];
    let mut backend = Fingerprint::new(config);
    let mut draw = |step, part| run(&mut backend, step, part).map(|draws| draws[0].token);
    assert_eq!(draw(0, part(0, &known(0..4), &[0], 0, 0)), Ok(TokenId(33)));
    assert_eq!(draw(1, part(4, &known([33]), &[0], 0, 1)), Ok(TokenId(44)));
    let poisoned = draw(2, part(5, &known([60]), &[0], 1, 2));
    let pos = Pos(5);
    assert_eq!(
        poisoned,
        Err(SeqError::NotFinite {
            op: "logits".into(),
            layer: None,
            pos
        })
    );
}
