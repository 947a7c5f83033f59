//! The model sees every slot and every row that a plan names, and nothing else.

use super::*;
use lockstep_step::{
    BlockId, ModelDrafter, Pos, ProposalPlan, QueryToken, RowId, RowPlan, RowWrite, SamplingParams,
    ScoredPosition, SeqError, SeqId, SeqPlan, SeqProposalPlan, StepId,
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

/// Both drafters, wrong this often.
fn drafting(wrong_per_mille: u32) -> Fingerprint {
    let mut config = FingerprintConfig::new(LIMITS);
    config.drafters = [ModelDrafter::Mtp, ModelDrafter::DraftModel]
        .map(|drafter| Drafting {
            drafter,
            wrong_per_mille,
        })
        .to_vec();
    Fingerprint::new(config)
}

fn ask(
    drafter: ModelDrafter,
    start: u32,
    query: &[u32],
    blocks: &[u32],
    row: u32,
) -> SeqProposalPlan {
    SeqProposalPlan {
        seq: SeqId(1),
        drafter,
        start: Pos(start),
        query: query.iter().copied().map(TokenId).collect(),
        num_max: 5,
        block_table: blocks.iter().map(|&block| BlockId(block)).collect(),
        row: (start > 0).then_some(RowId(row)),
        sampling: SamplingParams {
            temperature: 1.0,
            seed: 3,
            ..SamplingParams::greedy()
        },
        counts: vec![],
    }
}

fn propose(backend: &mut Fingerprint, ask: SeqProposalPlan) -> Vec<u32> {
    let proposals = backend.propose(&ProposalPlan { seqs: vec![ask] });
    let tokens = proposals.expect("the question is right").remove(0).tokens;
    tokens.iter().map(|token| token.0).collect()
}

/// 61 tokens in two parts, then what the model draws from there, one token at a time.
fn said(backend: &mut Fingerprint) -> Vec<u32> {
    run(backend, 0, part(0, &known(0..20), &[3], 0, 1)).expect("the first part");
    let mut tokens: Vec<u32> = Vec::new();
    let (mut start, mut query) = (20, known(20..61));
    for step in 1..7 {
        let mut part = part(start, &query, &[3, 5], step, step + 1);
        part.block_table
            .truncate((start as usize + query.len()).div_ceil(64));
        part.sampling.temperature = 1.0;
        part.sampling.seed = 3;
        let draw = run(backend, u64::from(step), part).expect("it draws")[0].token;
        start += query.len() as u32;
        query = known([draw.0]);
        tokens.push(draw.0);
    }
    tokens
}

#[test]
fn drafters_propose_what_will_be_drawn_until_a_block_or_a_row_is_not_what_it_should_be() {
    let said = said(&mut drafting(0));
    for drafter in [ModelDrafter::Mtp, ModelDrafter::DraftModel] {
        let mut backend = drafting(0);
        run(&mut backend, 0, part(0, &known(9..49), &[6], 0, 7)).expect("another sequence's");
        run(&mut backend, 1, part(0, &known(0..61), &[3], 0, 2)).expect("all but the last");
        let mut right = ask(drafter, 61, &[said[0]], &[3, 5], 2);
        let first = propose(&mut backend, right.clone());
        assert_eq!(first, said[1..], "{drafter:?}");
        assert_eq!(propose(&mut backend, right.clone()), first, "asked twice");
        right.query.push(TokenId(said[1]));
        assert_eq!(
            propose(&mut backend, right.clone())[..4],
            said[2..],
            "after a draft"
        );
        right.query.pop();
        let mut swapped = right.clone();
        swapped.block_table[0] = BlockId(6);
        assert_ne!(propose(&mut backend, swapped), first, "{drafter:?}");
        let mut stale = right.clone();
        stale.row = Some(RowId(7));
        // The head keeps its states beside the slots.
        let unmoved = propose(&mut backend, stale) == first;
        assert_eq!(unmoved, drafter == ModelDrafter::Mtp);
    }
}

#[test]
fn drafters_are_wrong_on_purpose_as_often_as_they_are_told() {
    let said = said(&mut drafting(0));
    let proposed = |wrong_per_mille, drafter| {
        let mut backend = drafting(wrong_per_mille);
        run(&mut backend, 1, part(0, &known(0..61), &[3], 0, 2)).expect("all but the last");
        propose(&mut backend, ask(drafter, 61, &[said[0]], &[3, 5], 2))
    };
    for drafter in [ModelDrafter::Mtp, ModelDrafter::DraftModel] {
        assert_ne!(proposed(1000, drafter)[0], said[1]);
        let some: Vec<bool> = (0..1000)
            .step_by(100)
            .map(|wrong| proposed(wrong, drafter)[0] == said[1])
            .collect();
        assert!(some[0] && some.is_sorted_by(|a, b| a >= b), "{some:?}");
    }
    let refused = model().propose(&ProposalPlan {
        seqs: vec![ask(ModelDrafter::Mtp, 61, &[1], &[3, 5], 2)],
    });
    assert!(
        matches!(refused, Err(BackendError::Device(_))),
        "{refused:?}"
    );
}

#[test]
fn drafters_change_nothing_that_is_said() {
    assert_eq!(said(&mut drafting(500)), said(&mut model()));
}

/// Steps of up to three sequences in chunks, each with drafts that are never right, and rows of their own.
fn random_plans(sizes: &[(usize, u32, u32)]) -> Vec<StepPlan> {
    let (mut computed, mut turns) = ([0u32; 3], [0u32; 3]);
    let mut plans = Vec::new();
    for (step, &(which, chunk, num_drafts)) in sizes.iter().enumerate() {
        let seqs = (0..3u32).filter(|seq| which >> seq & 1 == 1).map(|seq| {
            let (start, own_rows) = (computed[seq as usize], seq * 12);
            let end = start + chunk + num_drafts;
            let blocks: Vec<u32> = (0..end.div_ceil(64)).map(|block| 4 * seq + block).collect();
            let tokens = (start..end).map(|pos| (pos * 7 + seq + num_drafts) % 64);
            // Two sets of rows in turn: one is read, the other written.
            let turn = turns[seq as usize];
            let row = |turn: u32, draft: u32| own_rows + 6 * (turn % 2) + draft;
            let mut part = part(start, &known(tokens), &blocks, 0, 0);
            part.seq = SeqId(u64::from(seq));
            part.num_drafts = num_drafts;
            part.rows.read = (start > 0).then(|| RowId(row(turn + 1, 0)));
            let drafts = 0..=num_drafts;
            part.rows.writes = drafts
                .clone()
                .map(|draft| RowWrite {
                    query_idx: chunk - 1 + draft,
                    row: RowId(row(turn, draft)),
                })
                .collect();
            part.scored = drafts
                .map(|draft| ScoredPosition {
                    query_idx: chunk - 1 + draft,
                    mask: None,
                })
                .collect();
            part.sampling.top_logprobs = Some(2);
            computed[seq as usize] += chunk;
            turns[seq as usize] += 1;
            part
        });
        plans.push(StepPlan {
            step: StepId(step as u64),
            seqs: seqs.collect(),
            num_mask_rows: 0,
        });
    }
    plans
}

proptest::proptest! {
    /// Draws, digests, log-probabilities, and every block and row.
    #[test]
    fn buffers_of_fixed_sizes_change_nothing(
        sizes in proptest::collection::vec((1usize..8, 1u32..20, 0u32..5), 1..10)
    ) {
        let mut config = FingerprintConfig::new(BackendLimits {
            num_blocks: 12,
            num_rows: 36,
            ..LIMITS
        });
        config.drafters = vec![Drafting { drafter: ModelDrafter::Mtp, wrong_per_mille: 0 }];
        let mut exact = Fingerprint::new(config.clone());
        config.static_buffers = true;
        let mut fixed = Fingerprint::new(config);
        for plan in random_plans(&sizes) {
            let run = |backend: &mut Fingerprint| {
                let forward = backend.forward(&plan).expect("the plan is right");
                backend.sample(forward, &MaskSet::default()).expect("it samples")
            };
            proptest::prop_assert_eq!(run(&mut fixed), run(&mut exact));
            proptest::prop_assert_eq!(&fixed.model, &exact.model);
        }
    }
}
