//! The law: what a request gets is what it gets alone, whatever happens around it. Random requests,
//! limits, drafts and interleavings, compared with `==` to a fresh, single, plain run.

use super::*;
use core::cell::Cell;
use lockstep_step::{Backend, RowId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::string::String;

/// A request as plain data, so that it can be made twice.
#[derive(Clone, Debug)]
struct Spec {
    prompt: Vec<u32>,
    max_tokens: u32,
    seed: u64,
    is_greedy: bool,
    has_penalties: bool,
    has_end: bool,
    is_matched: bool,
    reasons: bool,
    budget: Option<u32>,
    stops: Vec<String>,
    top_logprobs: Option<u32>,
    /// Drafts per step, and one wrong draft in so many.
    drafts: (u32, usize),
}

impl Spec {
    fn request(&self) -> Request {
        let mut request = request(1, self.max_tokens);
        request.prompt = self.prompt.iter().map(|&token| TokenId(token)).collect();
        request.sampling.seed = self.seed;
        request.sampling.temperature = if self.is_greedy { 0.0 } else { 1.0 };
        request.sampling.top_logprobs = self.top_logprobs;
        if self.has_penalties {
            request.sampling.frequency_penalty = 0.5;
            request.sampling.repetition_penalty = 1.25;
            request.sampling.bias = vec![(TokenId(9), 1.5), (TokenId(10), -1.0)];
        }
        if self.has_end {
            request.end_tokens = vec![END];
        }
        if self.is_matched {
            request.matcher = Some(Box::new(Thirds::default()));
        }
        request.tags.reasoning = self.reasons;
        request.tags.starts_in_reasoning = self.reasons;
        request.reasoning = self.budget.map(|max_tokens| ReasoningBudget {
            max_tokens,
            close: vec![THINK_CLOSE],
        });
        request.stop_strings = self.stops.clone();
        request
    }
}

#[derive(Clone, Debug)]
enum Action {
    Submit,
    Step,
    /// Ends one of the sequences, by its place among those that still run.
    Abort(usize),
    /// Ends one while a step runs.
    AbortInStep(usize),
}

#[derive(Clone, Debug)]
struct Case {
    specs: Vec<Spec>,
    actions: Vec<Action>,
    config: EngineConfig,
    limits: BackendLimits,
}

fn spec() -> impl Strategy<Value = Spec> {
    let length = prop_oneof![2 => 1usize..20, 3 => 20usize..70, 2 => 70usize..126];
    let prompt = length.prop_flat_map(|len| prop::collection::vec(1..POISON.0, len));
    (
        (prompt, 1u32..200, any::<u64>()),
        (any::<bool>(), any::<bool>(), prop::bool::weighted(0.3)),
        (
            prop::bool::weighted(0.3),
            any::<bool>(),
            prop::option::of(0u32..12),
        ),
        prop::collection::vec("[ab]{3,5}", 0..2),
        prop::option::weighted(0.3, 0u32..4),
        (0u32..5, 1usize..6),
    )
        .prop_map(|(what, how, more, stops, top_logprobs, drafts)| Spec {
            prompt: what.0,
            max_tokens: what.1,
            seed: what.2,
            is_greedy: how.0,
            has_penalties: how.1,
            has_end: how.2,
            is_matched: more.0,
            reasons: more.1,
            budget: more.2,
            stops,
            top_logprobs,
            drafts,
        })
}

fn case() -> impl Strategy<Value = Case> {
    let action = prop_oneof![
        6 => Just(Action::Step),
        6 => Just(Action::Submit),
        1 => (0usize..16).prop_map(Action::Abort),
        1 => (0usize..16).prop_map(Action::AbortInStep),
    ];
    let sizes = (
        1u32..7,
        prop_oneof![1u32..8, 8u32..100, 100u32..400],
        prop_oneof![1u32..8, 8u32..100],
    );
    let pools = (2u32..5, prop_oneof![Just(0u32), 2u32..9]);
    (
        prop::collection::vec(spec(), 1..8),
        prop::collection::vec(action, 0..80),
        sizes,
        pools,
    )
        .prop_map(|(specs, actions, sizes, pools)| Case {
            specs,
            actions,
            config: EngineConfig {
                max_num_seqs: sizes.0,
                max_num_batched_tokens: sizes.1,
                chunk_tokens_max: sizes.2,
                ..config()
            },
            limits: BackendLimits {
                num_blocks: pools.0,
                num_rows: pools.1,
                seq_len_max: (pools.0 * 64).min(230),
                ..limits()
            },
        })
}

/// A fresh engine and model with plenty of everything, and this request alone.
fn alone(spec: &Spec, limits: BackendLimits) -> Vec<Event> {
    let limits = BackendLimits {
        num_blocks: 8,
        num_rows: limits.num_rows.min(1) * 8,
        ..limits
    };
    let mut engine = engine(config(), limits);
    let seq = engine.submit(Time(0), spec.request());
    assert_eq!(seq, Ok(SeqId(0)));
    run_to_end(&mut engine, &mut model(limits)).expect("no invariant breaks")
}

/// What the drafter will propose: the true output, with a wrong token here and there.
fn drafter(spec: &Spec, truth: &[TokenId]) -> Drafter {
    let (depth_max, wrong_every) = spec.drafts;
    let spoil = |(idx, token): (usize, &TokenId)| {
        if idx % wrong_every == wrong_every - 1 {
            TokenId((token.0 + 1) % VOCAB_SIZE)
        } else {
            *token
        }
    };
    Drafter::Replay {
        output: truth.iter().enumerate().map(spoil).collect(),
        depth_max,
    }
}

/// What happened over all cases: a law that was never put to the test holds trivially.
#[derive(Debug, Default)]
struct Coverage {
    preemptions: Cell<u64>,
    accepted: Cell<u64>,
    rejected: Cell<u64>,
    aborted_in_step: Cell<u64>,
    compared: Cell<u64>,
    errors: Cell<u64>,
}

fn add(cell: &Cell<u64>, amount: u64) {
    cell.set(cell.get() + amount);
}

/// Runs a step; aborts a sequence while it runs.
fn step(engine: &mut Engine, backend: &mut impl Backend, abort: Option<SeqId>) -> bool {
    let Some(plan) = engine.plan(Time(0)) else {
        assert_eq!(engine.fault(), None);
        return false;
    };
    engine.check_invariants().expect("while a step runs");
    let forward = backend.forward(&plan).expect("the plan is right");
    if let Some(seq) = abort {
        engine.abort(seq);
    }
    let masks = engine.fill_masks(&plan);
    let output = backend
        .sample(forward, &masks)
        .expect("the masks are right");
    engine.commit(Time(0), output).expect("no invariant breaks");
    engine.check_invariants().expect("after a commit");
    true
}

fn run_case(case: &Case, coverage: &Coverage) {
    let truths: Vec<Vec<Event>> = case
        .specs
        .iter()
        .map(|spec| alone(spec, case.limits))
        .collect();
    let mut engine = engine(case.config, case.limits);
    let mut backend = model(case.limits);
    let mut specs = case.specs.iter().zip(&truths);
    let mut aborted = vec![];
    let mut submit = |engine: &mut Engine| {
        let Some((spec, truth)) = specs.next() else {
            return false;
        };
        let seq = engine.submit(Time(0), spec.request()).expect("it fits");
        engine.set_drafter(seq, drafter(spec, &tokens(truth, SeqId(0))));
        true
    };
    for action in &case.actions {
        match *action {
            Action::Submit => drop(submit(&mut engine)),
            Action::Step => drop(step(&mut engine, &mut backend, None)),
            Action::Abort(idx) => {
                if engine.abort(SeqId(idx as u64)) {
                    aborted.push(SeqId(idx as u64));
                }
                engine.check_invariants().expect("after an abort");
            }
            Action::AbortInStep(idx) => {
                let seq = SeqId(idx as u64);
                let lives = engine.is_live(seq);
                if step(&mut engine, &mut backend, Some(seq)) && lives {
                    aborted.push(seq);
                    add(&coverage.aborted_in_step, 1);
                }
            }
        }
    }
    while submit(&mut engine) {}
    let mut num_steps = 0;
    while step(&mut engine, &mut backend, None) {
        num_steps += 1;
        assert!(num_steps < 200_000, "no end in sight");
    }
    assert!(!engine.has_work());
    let events = engine.poll_events();
    let stats = engine.stats();
    assert_eq!(stats.num_blocks_free, stats.num_blocks);
    assert_eq!(stats.num_rows_free, stats.num_rows);
    add(&coverage.preemptions, stats.totals.num_preemptions);
    add(&coverage.accepted, stats.totals.num_drafts_accepted);
    let num_rejected = stats.totals.num_drafts - stats.totals.num_drafts_accepted;
    add(&coverage.rejected, num_rejected);
    for (idx, truth) in truths.iter().enumerate() {
        let seq = SeqId(idx as u64);
        check_stream(&events, seq);
        let (got, mut expected) = (visible(&events, seq), visible(truth, SeqId(0)));
        match finish(&events, seq) {
            Finish::Aborted if aborted.contains(&seq) => {
                // What came before the abort is a beginning of the truth.
                expected.truncate(got.len() - 1);
                assert_eq!(got[..got.len() - 1], expected);
            }
            other => {
                assert_eq!(got, expected, "{seq:?}");
                add(
                    &coverage.errors,
                    u64::from(matches!(other, Finish::Error(_))),
                );
                add(&coverage.compared, 1);
            }
        }
    }
}

/// `Finished` comes once and last, and `at` never falls.
fn check_stream(events: &[Event], seq: SeqId) {
    let own: Vec<&Event> = events.iter().filter(|event| event.seq == seq).collect();
    assert!(own.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let finished = own
        .iter()
        .position(|event| matches!(event.kind, EventKind::Finished(_)));
    assert_eq!(finished, Some(own.len() - 1));
    let scheduled = own
        .iter()
        .filter(|event| event.kind == EventKind::Scheduled);
    assert!(scheduled.count() <= 1);
}

#[test]
fn every_request_gets_what_it_gets_alone() {
    let coverage = Coverage::default();
    let config = Config {
        cases: 600,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    )
    .run(&case(), |case| {
        run_case(&case, &coverage);
        Ok(())
    })
    .expect("the law holds");
    std::println!("{coverage:?}");
    for (name, seen, least) in [
        ("preemptions", &coverage.preemptions, 100),
        ("accepted drafts", &coverage.accepted, 1000),
        ("rejected drafts", &coverage.rejected, 1000),
        ("aborts in a step", &coverage.aborted_in_step, 5),
        ("whole outputs", &coverage.compared, 200),
        ("errors", &coverage.errors, 5),
    ] {
        let seen = seen.get();
        std::println!("{name}: {seen}");
        assert!(
            seen >= least,
            "only {seen} {name} were seen: the law was hardly tested"
        );
    }
}

/// The oracle must notice: a backend that reads a stale row now and then breaks the law.
struct StaleRow(Fingerprint);

impl Backend for StaleRow {
    type Forward = <Fingerprint as Backend>::Forward;

    fn limits(&self) -> BackendLimits {
        self.0.limits()
    }

    fn forward(
        &mut self,
        plan: &lockstep_step::StepPlan,
    ) -> Result<Self::Forward, lockstep_step::BackendError> {
        let mut plan = plan.clone();
        let num_rows = self.0.limits().num_rows;
        for seq in &mut plan.seqs {
            let named = |row: &RowId| {
                seq.rows.read == Some(*row) || seq.rows.writes.iter().any(|write| write.row == *row)
            };
            let other = (0..num_rows).map(RowId).find(|row| !named(row));
            if seq.num_drafts > 0 && seq.rows.read.is_some() {
                seq.rows.read = other;
            }
        }
        self.0.forward(&plan)
    }

    fn sample(
        &mut self,
        forward: Self::Forward,
        masks: &lockstep_step::MaskSet,
    ) -> Result<lockstep_step::StepOutput, lockstep_step::BackendError> {
        self.0.sample(forward, masks)
    }
}

#[test]
fn a_stale_row_is_noticed() {
    let truth = {
        let mut engine = engine(config(), limits());
        engine.submit(Time(0), request(20, 40)).expect("it fits");
        run_to_end(&mut engine, &mut model(limits())).expect("no invariant breaks")
    };
    let run = |is_stale: bool| {
        let mut engine = engine(config(), limits());
        let seq = engine.submit(Time(0), request(20, 40)).expect("it fits");
        let output = tokens(&truth, SeqId(0));
        engine.set_drafter(
            seq,
            Drafter::Replay {
                output,
                depth_max: 2,
            },
        );
        let events = if is_stale {
            run_to_end(&mut engine, &mut StaleRow(model(limits())))
        } else {
            run_to_end(&mut engine, &mut model(limits()))
        };
        visible(&events.expect("no invariant breaks"), seq)
    };
    assert_eq!(run(false), visible(&truth, SeqId(0)));
    assert_ne!(run(true), visible(&truth, SeqId(0)));
}
