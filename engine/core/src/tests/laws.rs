//! The law: what a request gets is what it gets alone, whatever happens around it. Random requests,
//! limits, drafts and interleavings, compared with `==` to a fresh, single, plain run.

use super::automaton::{Automaton, Hint};
use super::prefixes::Oracle;
use super::turns::{Schedule, Turns};
use super::*;
use core::cell::Cell;
use lockstep_step::{Backend, RowId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A request as plain data, so that it can be made twice.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) prompt: Vec<u32>,
    pub(super) salt: &'static str,
    max_tokens: u32,
    seed: u64,
    is_greedy: bool,
    has_penalties: bool,
    has_end: bool,
    constraint: Grammar,
    reasons: bool,
    budget: Option<u32>,
    stops: Vec<String>,
    top_logprobs: Option<u32>,
    proposer: Proposer,
}

/// What constrains a request.
#[derive(Clone, Debug)]
enum Grammar {
    Free,
    Thirds,
    Automaton(Automaton),
}

/// Who proposes drafts for a request.
#[derive(Clone, Debug)]
enum Proposer {
    /// Whoever the engine chose.
    Own,
    /// A recording with so many drafts per step, one in so many of them wrong.
    Recording(u32, usize),
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
        request.matcher = match &self.constraint {
            Grammar::Free => None,
            Grammar::Thirds => Some(Box::new(Thirds::default())),
            Grammar::Automaton(automaton) => Some(Box::new(Automaton {
                ends: self.has_end,
                ..automaton.clone()
            })),
        };
        request.tags.reasoning = self.reasons;
        request.tags.starts_in_reasoning = self.reasons;
        request.reasoning = self.budget.map(|max_tokens| ReasoningBudget {
            max_tokens,
            close: vec![THINK_CLOSE],
        });
        request.stop_strings = self.stops.clone();
        request.cache_salt = self.salt.into();
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
pub(super) struct Case {
    specs: Vec<Spec>,
    /// How often each spec is submitted.
    num_rounds: usize,
    actions: Vec<Action>,
    schedule: Schedule,
    /// One in so many tokens of a model that drafts is wrong.
    wrong_every: usize,
    config: EngineConfig,
    limits: BackendLimits,
}

/// A grammar with long forced stretches: most states leave one way on.
fn automaton() -> impl Strategy<Value = Automaton> {
    let token = prop_oneof![1 => Just(THINK_CLOSE.0), 1 => Just(END.0), 12 => 4u32..POISON.0];
    let edges = |num: std::ops::Range<usize>| {
        prop::collection::btree_map(token.clone(), 0usize..8, num)
            .prop_map(|edges| Vec::from_iter(edges.into_iter().map(|(t, next)| (TokenId(t), next))))
    };
    let state = (
        prop_oneof![12 => edges(1..2), 4 => edges(2..6), 1 => edges(0..1)],
        prop::bool::weighted(0.15),
    );
    let hint = prop_oneof![3 => Just(Hint::Honest), 1 => Just(Hint::Wrong), 1 => Just(Hint::Wild)];
    (
        prop::collection::vec(state, 8),
        hint,
        prop::option::weighted(0.2, 1usize..8),
    )
        .prop_map(|(states, hint, broken_at)| {
            let (edges, accepts): (Vec<Vec<(TokenId, usize)>>, Vec<bool>) =
                states.into_iter().unzip();
            Automaton {
                edges: edges
                    .into_iter()
                    .map(|edges| edges.into_iter().filter(|edge| edge.0 != END).collect())
                    .collect(),
                accepts,
                end: END,
                hint,
                broken_at,
                ..Automaton::default()
            }
        })
}

fn prompt() -> impl Strategy<Value = Vec<u32>> {
    let length = prop_oneof![2 => 1usize..20, 3 => 20usize..70, 2 => 70usize..126];
    length.prop_flat_map(|len| prop::collection::vec(1..POISON.0, len))
}

pub(super) fn spec(prompt: impl Strategy<Value = Vec<u32>>) -> impl Strategy<Value = Spec> {
    (
        (prompt, 1u32..200, any::<u64>()),
        (any::<bool>(), any::<bool>(), prop::bool::weighted(0.3)),
        (
            prop_oneof![
                2 => Just(Grammar::Free),
                1 => Just(Grammar::Thirds),
                3 => automaton().prop_map(Grammar::Automaton),
            ],
            any::<bool>(),
            prop::option::of(0u32..12),
        ),
        prop::collection::vec("[ab]{3,5}", 0..2),
        prop::option::weighted(0.3, 0u32..4),
        prop_oneof![
            1 => Just(Proposer::Own),
            1 => (0u32..5, 1usize..6).prop_map(|(depth, wrong)| Proposer::Recording(depth, wrong)),
        ],
    )
        .prop_map(|(what, how, more, stops, top_logprobs, proposer)| Spec {
            prompt: what.0,
            salt: "",
            max_tokens: what.1,
            seed: what.2,
            is_greedy: how.0,
            has_penalties: how.1,
            has_end: how.2,
            constraint: more.0,
            reasons: more.1,
            budget: more.2,
            stops,
            top_logprobs,
            proposer,
        })
}

/// Random interleavings of these, with so many blocks and rows.
pub(super) fn case(
    specs: impl Strategy<Value = Vec<Spec>>,
    num_rounds: std::ops::Range<usize>,
    pools: impl Strategy<Value = (u32, u32)>,
    seq_len_max: u32,
) -> impl Strategy<Value = Case> {
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
        prop_oneof![
            1 => Just(Speculation::OFF),
            5 => (0u32..10, 0u32..16, 0u32..16).prop_map(|(forced, suffix, ngram)| Speculation {
                forced,
                suffix,
                ngram,
                ..Speculation::OFF
            }),
            2 => (0u32..10, 1u32..16).prop_map(|(forced, ngram)| Speculation {
                forced,
                ngram,
                ..Speculation::OFF
            }),
            2 => (0u32..10, 0u32..4, 0u32..16, 0u32..16).prop_map(|depths| Speculation {
                forced: depths.0,
                suffix: depths.1,
                ngram: 0,
                mtp: depths.2,
                draft_model: depths.3,
            }),
        ],
        prop::bool::weighted(0.8),
        prop_oneof![Just(RejectedDrafts::Trim), Just(RejectedDrafts::Pad)],
    );
    let schedule = prop_oneof![
        Just(Schedule::Sync),
        Just(Schedule::Overlapped),
        Just(Schedule::Switching),
    ];
    (
        (specs, num_rounds),
        prop::collection::vec(action, 0..80),
        sizes,
        pools,
        (schedule, 2usize..9),
    )
        .prop_map(
            move |((specs, num_rounds), actions, sizes, pools, more)| Case {
                specs,
                num_rounds,
                actions,
                schedule: more.0,
                wrong_every: more.1,
                config: EngineConfig {
                    max_num_seqs: sizes.0,
                    max_num_batched_tokens: sizes.1,
                    chunk_tokens_max: sizes.2,
                    speculation: sizes.3,
                    prefix_cache: sizes.4,
                    rejected_drafts: sizes.5,
                    ..config()
                },
                limits: BackendLimits {
                    num_blocks: pools.0,
                    num_rows: pools.1,
                    seq_len_max: (pools.0 * 64).min(seq_len_max),
                    ..limits()
                },
            },
        )
}

/// A fresh engine and model with plenty of everything, no drafts, and this request alone.
fn alone(spec: &Spec, limits: BackendLimits) -> Vec<Event> {
    let limits = BackendLimits {
        num_blocks: 16,
        num_rows: limits.num_rows.min(1) * 8,
        ..limits
    };
    let config = EngineConfig {
        speculation: Speculation::OFF,
        prefix_cache: false,
        ..config()
    };
    let mut engine = engine(config, limits);
    let seq = engine.submit(Time(0), spec.request());
    assert_eq!(seq, Ok(SeqId(0)));
    let events = run_to_end(&mut engine, &mut model(limits)).expect("no invariant breaks");
    assert_eq!(engine.stats().totals.num_drafts, 0);
    events
}

/// What a recording will propose: the true output, with a wrong token here and there.
fn recording(truth: &[TokenId], depth_max: u32, wrong_every: usize) -> Drafter {
    let spoil = |(idx, token): (usize, &TokenId)| {
        if idx % wrong_every == wrong_every - 1 {
            TokenId((token.0 + 1) % VOCAB_SIZE)
        } else {
            *token
        }
    };
    Drafter::Replay {
        output: truth.iter().enumerate().map(spoil).collect(),
        depths: vec![depth_max],
    }
}

/// What happened over all cases: a law that was never put to the test holds trivially.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    pub(super) preemptions: Cell<u64>,
    pub(super) accepted: Cell<u64>,
    rejected: Cell<u64>,
    forced: Cell<u64>,
    forced_accepted: Cell<u64>,
    suffix: Cell<u64>,
    suffix_accepted: Cell<u64>,
    ngram: Cell<u64>,
    ngram_accepted: Cell<u64>,
    asked: Cell<u64>,
    models: Cell<u64>,
    models_accepted: Cell<u64>,
    pub(super) overlapped: Cell<u64>,
    pub(super) void: Cell<u64>,
    shorter: Cell<u64>,
    rows_left_out: Cell<u64>,
    rolled_back: Cell<u64>,
    pub(super) aborted_in_step: Cell<u64>,
    pub(super) compared: Cell<u64>,
    errors: Cell<u64>,
    pub(super) cached: Cell<u64>,
    pub(super) recovered: Cell<u64>,
    pub(super) evicted_blocks: Cell<u64>,
    pub(super) evicted_rows: Cell<u64>,
    /// Admissions with a hit whose length was counted exactly.
    pub(super) exact_hits: Cell<u64>,
}

pub(super) fn add(cell: &Cell<u64>, amount: u64) {
    cell.set(cell.get() + amount);
}

pub(super) fn run_case(case: &Case, coverage: &Coverage) {
    let truths: Vec<Vec<Event>> = case
        .specs
        .iter()
        .map(|spec| alone(spec, case.limits))
        .collect();
    let mut backend = model(case.limits);
    let mut turns = Turns::new(
        engine(case.config, case.limits),
        &mut backend,
        Oracle::new(case.limits.num_rows > 0),
        case.schedule,
    );
    turns.wrong_every = case.wrong_every;
    let num_requests = truths.len() * case.num_rounds;
    let mut specs = case.specs.iter().zip(&truths).cycle().take(num_requests);
    let mut aborted = vec![];
    let mut submit = |turns: &mut Turns<'_, Fingerprint>| {
        let Some((spec, truth)) = specs.next() else {
            return false;
        };
        let seq = turns.engine.submit(Time(0), spec.request());
        let seq = seq.expect("it fits");
        turns.oracle.submitted(seq, spec.salt, &spec.prompt);
        turns.truths.insert(seq, tokens(truth, SeqId(0)));
        if let Proposer::Recording(depth_max, wrong_every) = spec.proposer {
            let recording = recording(&tokens(truth, SeqId(0)), depth_max, wrong_every);
            turns.engine.set_drafter(seq, recording);
        }
        true
    };
    for action in &case.actions {
        match *action {
            Action::Submit => drop(submit(&mut turns)),
            Action::Step => drop(turns.turn(None)),
            Action::Abort(idx) => {
                if turns.engine.abort(SeqId(idx as u64)) {
                    aborted.push(SeqId(idx as u64));
                }
                let checked = turns.engine.check_invariants();
                checked.expect("after an abort");
            }
            Action::AbortInStep(idx) => {
                let seq = SeqId(idx as u64);
                let lives = turns.engine.is_live(seq);
                if turns.turn(Some(seq)) && lives {
                    aborted.push(seq);
                    add(&coverage.aborted_in_step, 1);
                }
            }
        }
    }
    while submit(&mut turns) {}
    let mut num_steps = 0;
    while turns.turn(None) {
        num_steps += 1;
        assert!(num_steps < 200_000, "no end in sight");
    }
    let Turns {
        mut engine,
        mut oracle,
        num_asked,
        num_proposed,
        ..
    } = turns;
    assert!(!engine.has_work());
    let events = oracle.finish(&mut engine);
    let stats = engine.stats();
    if case.config.prefix_cache {
        add(&coverage.exact_hits, oracle.num_exact_hits);
    }
    add(&coverage.cached, stats.totals.num_cached_tokens);
    add(&coverage.recovered, stats.totals.num_recovered_tokens);
    add(&coverage.evicted_blocks, stats.totals.num_evicted_blocks);
    add(&coverage.evicted_rows, stats.totals.num_evicted_rows);
    assert_eq!(stats.num_blocks_free, stats.num_blocks);
    assert_eq!(stats.num_rows_free, stats.num_rows);
    add(&coverage.preemptions, stats.totals.num_preemptions);
    add(&coverage.accepted, stats.totals.num_drafts_accepted);
    let num_rejected = stats.totals.num_drafts - stats.totals.num_drafts_accepted;
    add(&coverage.rejected, num_rejected);
    let totals = stats.totals;
    let (forced, suffix, ngram) = (DraftSource::Forced, DraftSource::Suffix, DraftSource::Ngram);
    add(&coverage.forced, totals.drafts.proposed(forced));
    add(&coverage.forced_accepted, totals.drafts.accepted(forced));
    add(&coverage.suffix, totals.drafts.proposed(suffix));
    add(&coverage.suffix_accepted, totals.drafts.accepted(suffix));
    add(&coverage.ngram, totals.drafts.proposed(ngram));
    add(&coverage.ngram_accepted, totals.drafts.accepted(ngram));
    let models = [DraftSource::Mtp, DraftSource::DraftModel].map(|model| {
        let totals = totals.drafts;
        (totals.proposed(model), totals.accepted(model))
    });
    assert!(models[0].0 + models[1].0 <= num_proposed);
    add(&coverage.asked, num_asked);
    add(&coverage.models, models[0].0 + models[1].0);
    add(&coverage.models_accepted, models[0].1 + models[1].1);
    add(&coverage.overlapped, totals.num_steps_overlapped);
    add(&coverage.void, totals.num_void_parts);
    add(&coverage.shorter, totals.num_shorter_parts);
    assert!(case.schedule != Schedule::Sync || totals.num_steps_overlapped == 0);
    add(&coverage.rows_left_out, totals.num_mask_rows_left_out);
    add(&coverage.rolled_back, totals.num_rolled_back);
    for (idx, truth) in truths.iter().cycle().take(num_requests).enumerate() {
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
    let specs = prop::collection::vec(spec(prompt()), 1..8);
    let pools = (2u32..5, prop_oneof![Just(0u32), 2u32..9]);
    check_law(1200, &case(specs, 1..2, pools, 230), &coverage);
    coverage.check(&[
        ("preemptions", &coverage.preemptions, 100),
        ("accepted drafts", &coverage.accepted, 1000),
        ("rejected drafts", &coverage.rejected, 1000),
        ("aborts in a step", &coverage.aborted_in_step, 5),
        ("whole outputs", &coverage.compared, 200),
        ("errors", &coverage.errors, 5),
        ("forced drafts", &coverage.forced, 1000),
        ("accepted forced drafts", &coverage.forced_accepted, 1000),
        ("suffix drafts", &coverage.suffix, 500),
        ("accepted suffix drafts", &coverage.suffix_accepted, 300),
        ("n-gram drafts", &coverage.ngram, 300),
        ("accepted n-gram drafts", &coverage.ngram_accepted, 10),
        ("questions to models", &coverage.asked, 1000),
        ("drafts of models", &coverage.models, 1000),
        ("accepted drafts of models", &coverage.models_accepted, 1000),
        ("steps planned ahead", &coverage.overlapped, 1000),
        ("void parts", &coverage.void, 500),
        ("shorter parts", &coverage.shorter, 2000),
        ("mask rows left out", &coverage.rows_left_out, 1000),
        ("tokens rolled back", &coverage.rolled_back, 1000),
        ("recovered tokens", &coverage.recovered, 1000),
    ]);
}

/// Runs so many random cases, the same ones each time.
pub(super) fn check_law(num: u32, cases: &impl Strategy<Value = Case>, coverage: &Coverage) {
    let config = Config {
        cases: num,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = proptest::test_runner::TestRng::deterministic_rng(
        proptest::test_runner::RngAlgorithm::ChaCha,
    );
    TestRunner::new_with_rng(config, rng)
        .run(cases, |case| {
            run_case(&case, coverage);
            Ok(())
        })
        .expect("the law holds");
}

impl Coverage {
    /// What must have been seen at least so often.
    pub(super) fn check(&self, wanted: &[(&str, &Cell<u64>, u64)]) {
        std::println!("{self:?}");
        for &(name, seen, least) in wanted {
            let seen = seen.get();
            assert!(
                seen >= least,
                "only {seen} {name} were seen: the law was hardly tested"
            );
        }
    }
}

/// The oracle must notice: a backend that reads a stale row now and then breaks the law.
struct StaleRow(Fingerprint);

impl Backend for StaleRow {
    type Forward = <Fingerprint as Backend>::Forward;
    type Sampled = lockstep_step::StepOutput;

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

    fn draw(
        &mut self,
        forward: Self::Forward,
        masks: &lockstep_step::MaskSet,
    ) -> Result<Self::Sampled, lockstep_step::BackendError> {
        self.0.draw(forward, masks)
    }

    fn collect(
        &mut self,
        sampled: Self::Sampled,
    ) -> Result<lockstep_step::StepOutput, lockstep_step::BackendError> {
        self.0.collect(sampled)
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
                depths: vec![2],
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

#[test]
fn forced_drafts_change_nothing_but_speed() {
    // A sentence of ten tokens, over and over, with a choice at its end.
    let mut edges: Vec<Vec<(TokenId, usize)>> = (0..9)
        .map(|idx| vec![(TokenId(20 + idx), idx as usize + 1)])
        .collect();
    edges.push((10..18).map(|token| (TokenId(token), 0)).collect());
    let sentence = |hint| Automaton {
        edges: edges.clone(),
        accepts: vec![false; 10],
        end: END,
        hint,
        ..Automaton::default()
    };
    let run = |hint, forced_drafts| {
        let config = EngineConfig {
            speculation: Speculation {
                forced: forced_drafts,
                ..Speculation::OFF
            },
            ..config()
        };
        let (mut engine, mut model) = (engine(config, limits()), model(limits()));
        let mut constrained = request(9, 100);
        constrained.matcher = Some(Box::new(sentence(hint)));
        constrained.sampling.temperature = 1.0;
        constrained.sampling.top_logprobs = Some(2);
        let seq = engine.submit(Time(0), constrained).expect("it fits");
        let events = run_to_end(&mut engine, &mut model).expect("no invariant breaks");
        (visible(&events, seq), engine.stats().totals)
    };
    let (plain, totals) = run(Hint::Honest, 0);
    assert_eq!(
        (
            totals.num_steps,
            totals.drafts.proposed(DraftSource::Forced)
        ),
        (100, 0)
    );
    for (hint, forced_drafts, num_steps) in [
        (Hint::Honest, 1, 50),
        (Hint::Honest, 8, 20),
        // The whole sentence, and the choice as the bonus.
        (Hint::Honest, 16, 10),
        (Hint::Wrong, 16, 100),
        (Hint::Wild, 16, 10),
    ] {
        let (got, totals) = run(hint, forced_drafts);
        assert_eq!(got, plain, "{hint:?}, {forced_drafts}");
        assert_eq!(totals.num_steps, num_steps, "{hint:?}, {forced_drafts}");
        assert_eq!(
            totals.drafts.proposed(DraftSource::Forced),
            totals.num_drafts
        );
        assert_eq!(totals.drafts.accepted(DraftSource::Forced), 100 - num_steps);
    }
}
