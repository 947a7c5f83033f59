//! The canary of acceptance: a model that drafts for itself is always right. Whatever else it proposes comes from a
//! block, a row, a count or a position that is not what it should be.

use super::turns::{Schedule, Turns};
use super::*;
use lockstep_fingerprint::Drafting;
use lockstep_step::ModelDrafter;

/// Twelve requests, greedy and not, with and without penalties, over an engine that has to preempt.
fn run(drafter: ModelDrafter, depth: u32, wrong_per_mille: u32, schedule: Schedule) -> Totals {
    let limits = BackendLimits {
        num_blocks: 9,
        num_rows: 40,
        ..limits()
    };
    let config = EngineConfig {
        max_num_seqs: 6,
        speculation: match drafter {
            ModelDrafter::Mtp => Speculation {
                mtp: depth,
                ..Speculation::OFF
            },
            ModelDrafter::DraftModel => Speculation {
                draft_model: depth,
                ..Speculation::OFF
            },
        },
        ..config()
    };
    let mut fingerprint = FingerprintConfig::new(limits);
    fingerprint.drafters = vec![Drafting {
        drafter,
        wrong_per_mille,
    }];
    let mut backend = Fingerprint::new(fingerprint);
    let mut engine = engine(config, limits);
    let prompts: Vec<Request> = (0..12)
        .map(|idx| {
            let mut wanted = request(20 + idx * 7, 60);
            wanted.sampling.seed = u64::from(idx);
            wanted.sampling.temperature = if idx % 3 == 0 { 0.0 } else { 1.0 };
            if idx % 4 == 0 {
                wanted.sampling.frequency_penalty = 0.4;
                wanted.sampling.repetition_penalty = 1.3;
            }
            wanted
        })
        .collect();
    let mut oracle = prefixes::Oracle::new(true);
    for request in prompts {
        let prompt: Vec<u32> = request.prompt.iter().map(|token| token.0).collect();
        let seq = engine.submit(Time(0), request).expect("it fits");
        oracle.submitted(seq, "", &prompt);
    }
    let mut turns = Turns::new(engine, &mut backend, oracle, schedule);
    turns.asks_backend = true;
    while turns.turn(None) {}
    turns.engine.stats().totals
}

#[test]
fn a_model_that_drafts_for_itself_is_right_at_each_position() {
    let mut num_preemptions = 0;
    for schedule in [Schedule::Sync, Schedule::Overlapped, Schedule::Switching] {
        for drafter in [ModelDrafter::Mtp, ModelDrafter::DraftModel] {
            for depth in [1, 2, 3, 7, 15] {
                let totals = run(drafter, depth, 0, schedule);
                let (proposed, accepted) = (
                    totals.drafts.proposed(drafter.into()),
                    totals.drafts.accepted(drafter.into()),
                );
                assert!(proposed > 200, "{drafter:?} {depth}: {proposed}");
                assert_eq!(accepted, proposed, "{drafter:?} {depth} {schedule:?}");
                assert_eq!(totals.drafts.shares(drafter.into()), 12.0);
                assert_eq!(totals.num_void_parts, 0);
                num_preemptions += totals.num_preemptions;
            }
        }
    }
    assert!(num_preemptions > 50, "{num_preemptions}");
    // And it is no canary that can't die.
    let totals = run(ModelDrafter::DraftModel, 3, 200, Schedule::Sync);
    let model = DraftSource::DraftModel;
    assert!(totals.drafts.accepted(model) < totals.drafts.proposed(model));
}
