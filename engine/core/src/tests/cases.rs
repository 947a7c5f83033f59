//! One situation per test.

use super::*;
use lockstep_fingerprint::Script;
use lockstep_step::{Backend, SeqError, StepId, StepOutput};

/// Plans, and runs the plan up to its output.
fn half_step(engine: &mut Engine, backend: &mut Fingerprint) -> StepOutput {
    let plan = engine.plan(Time(0)).expect("there is work");
    let forward = backend.forward(&plan).expect("the plan is right");
    let masks = engine.fill_masks(&plan);
    backend
        .sample(forward, &masks)
        .expect("the masks are right")
}

#[test]
fn a_prompt_is_computed_in_chunks_beside_others_under_the_budget() {
    let config = EngineConfig {
        max_num_batched_tokens: 50,
        chunk_tokens_max: 40,
        ..config()
    };
    let (mut engine, mut backend) = (engine(config, limits()), model(limits()));
    for prompt_len in [100, 5, 30] {
        engine
            .submit(Time(0), request(prompt_len, 4))
            .expect("it fits");
    }
    let mut shapes = vec![];
    while let Some(plan) = engine.plan(Time(0)) {
        let seqs = plan.seqs.iter();
        shapes.push(
            seqs.map(|seq| (seq.seq.0, seq.start.0, seq.query.len()))
                .collect::<Vec<_>>(),
        );
        let forward = backend.forward(&plan).expect("the plan is right");
        let masks = engine.fill_masks(&plan);
        let output = backend
            .sample(forward, &masks)
            .expect("the masks are right");
        engine.commit(Time(0), output).expect("no invariant breaks");
    }
    assert_eq!(shapes[0], [(0, 0, 40), (1, 0, 5), (2, 0, 5)]);
    assert_eq!(shapes[1], [(0, 40, 40), (1, 5, 1), (2, 5, 9)]);
    assert_eq!(shapes[2], [(0, 80, 20), (1, 6, 1), (2, 14, 16)]);
    assert_eq!(shapes[3], [(0, 100, 1), (1, 7, 1), (2, 30, 1)]);
}

#[test]
fn the_youngest_gives_way_and_goes_on_first() {
    let limits = BackendLimits {
        num_blocks: 4,
        seq_len_max: 256,
        ..limits()
    };
    // All three say the same: with the cache they would share their blocks, and nobody had to give way.
    let config = EngineConfig {
        prefix_cache: false,
        ..config()
    };
    let (mut engine, mut backend) = (engine(config, limits), model(limits));
    for _ in 0..3 {
        engine.submit(Time(0), request(60, 90)).expect("it fits");
    }
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    let order = |wanted: fn(&EventKind) -> bool| -> Vec<u64> {
        let found = events.iter().filter(|event| wanted(&event.kind));
        found.map(|event| event.seq.0).collect()
    };
    let preempted = order(|kind| *kind == EventKind::Preempted);
    assert_eq!(preempted.first(), Some(&2), "{preempted:?}");
    assert!(!preempted.contains(&0), "the oldest never gives way");
    assert_eq!(
        order(|kind| matches!(kind, EventKind::Finished(_))),
        [0, 1, 2]
    );
    assert_eq!(
        engine.stats().totals.num_preemptions,
        preempted.len() as u64
    );
}

#[test]
fn an_abort_in_mid_step_keeps_what_the_step_names_until_its_commit() {
    let limits = BackendLimits {
        num_blocks: 2,
        ..limits()
    };
    let (mut engine, mut backend) = (engine(config(), limits), model(limits));
    let seq = engine.submit(Time(0), request(70, 5)).expect("it fits");
    let output = half_step(&mut engine, &mut backend);
    assert!(engine.abort(seq));
    assert!(!engine.abort(seq), "it is gone");
    assert_eq!(
        engine.stats().num_blocks_free,
        0,
        "the step still names both"
    );
    assert_eq!(engine.plan(Time(0)), None, "one step at a time");
    engine
        .commit(Time(0), output)
        .expect("a late answer is no fault");
    assert_eq!(engine.stats().num_blocks_free, 2);
    assert_eq!(engine.stats().num_rows_free, 16);
    assert_eq!(finish(&engine.poll_events(), seq), Finish::Aborted);
    assert!(!engine.has_work());
}

#[test]
fn refusals_name_numbers_and_keep_nothing() {
    // One may run and one may wait.
    let config = EngineConfig {
        max_num_seqs: 1,
        max_waiting_requests: 1,
        max_waiting_tokens: 100,
        ..config()
    };
    let mut engine = engine(config, limits());
    let mut refuse = |request: Request| {
        engine
            .submit(Time(0), request)
            .map_err(|refusal| refusal.kind())
    };
    assert_eq!(refuse(request(0, 1)), Err("empty_prompt"));
    assert_eq!(refuse(request(1, 0)), Err("no_tokens_wanted"));
    assert_eq!(refuse(request(512, 1)), Err("prompt_too_long"));
    let mut outside = request(3, 1);
    outside.prompt[2] = TokenId(VOCAB_SIZE);
    assert_eq!(refuse(outside), Err("token_out_of_range"));
    let mut biased = request(3, 1);
    biased.sampling.bias = vec![(TokenId(3), 1.0), (TokenId(3), 1.0)];
    assert_eq!(refuse(biased), Err("bias_out_of_order"));
    let mut hot = request(3, 1);
    hot.sampling.temperature = f32::NAN;
    assert_eq!(refuse(hot), Err("bad_sampling"));
    let mut empty_stop = request(3, 1);
    empty_stop.stop_strings = vec!["".into()];
    assert_eq!(refuse(empty_stop), Err("empty_stop_string"));
    // Waiting would not help, so it is no queue that is full.
    assert_eq!(refuse(request(101, 1)), Err("never_fits"));
    assert_eq!(
        refuse(request(60, 1)),
        Ok(SeqId(0)),
        "no number was used up"
    );
    let full = engine.submit(Time(0), request(41, 1));
    let kind = QueueKind::Tokens;
    assert_eq!(
        full,
        Err(Refusal::QueueFull {
            kind,
            now: 60,
            limit: 100
        })
    );
    assert_eq!(engine.submit(Time(0), request(40, 1)), Ok(SeqId(1)));
    let full = engine.submit(Time(0), request(1, 1));
    let kind = QueueKind::Requests;
    assert_eq!(
        full,
        Err(Refusal::QueueFull {
            kind,
            now: 2,
            limit: 2
        })
    );
}

#[test]
fn limits_without_room_make_no_engine() {
    let make = |config, limits| Engine::new(config, limits, vocabulary()).err();
    let one_row = BackendLimits {
        num_rows: 1,
        ..limits()
    };
    assert_eq!(
        make(config(), one_row),
        Some(ConfigError::TooFewRows { num_rows: 1 })
    );
    let idle = EngineConfig {
        max_num_seqs: 0,
        ..config()
    };
    assert_eq!(
        make(idle, limits()),
        Some(ConfigError::Zero("max_num_seqs"))
    );
}

#[test]
fn the_pool_bounds_the_length_like_the_model_does() {
    let limits = BackendLimits {
        num_blocks: 1,
        ..limits()
    };
    let (mut engine, mut backend) = (engine(config(), limits), model(limits));
    assert_eq!(engine.seq_len_max(), 64);
    assert!(engine.submit(Time(0), request(64, 1)).is_err());
    let seq = engine
        .submit(Time(0), request(60, 1000))
        .expect("there is room for four");
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    assert_eq!(finish(&events, seq), Finish::Length);
    assert_eq!(tokens(&events, seq).len(), 4);
}

#[test]
fn a_nan_ends_its_own_sequence_only() {
    let (mut engine, mut backend) = (engine(config(), limits()), model(limits()));
    let healthy = engine.submit(Time(0), request(9, 5)).expect("it fits");
    let mut poisoned = request(9, 5);
    poisoned.prompt[4] = POISON;
    let poisoned = engine.submit(Time(0), poisoned).expect("it fits");
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    assert_eq!(finish(&events, healthy), Finish::Length);
    let error = finish(&events, poisoned);
    let is_nan = matches!(
        error,
        Finish::Error(RequestError::Seq(SeqError::NotFinite { .. }))
    );
    assert!(is_nan, "{error:?}");
}

#[test]
fn a_failed_step_ends_its_sequences_and_the_next_ones_run() {
    let mut model_config = FingerprintConfig::new(limits());
    model_config.failing_step = Some(StepId(2));
    let mut backend = Fingerprint::new(model_config);
    let config = EngineConfig {
        max_num_seqs: 2,
        ..config()
    };
    let mut engine = engine(config, limits());
    let seqs: Vec<SeqId> = (0..3)
        .map(|_| engine.submit(Time(0), request(9, 5)).expect("it fits"))
        .collect();
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    for &seq in &seqs[..2] {
        let Finish::Error(error) = finish(&events, seq) else {
            panic!("{seq:?} was in the step")
        };
        assert_eq!(error.kind(), "step_failed");
        assert_eq!(tokens(&events, seq).len(), 2, "what came before stands");
    }
    assert_eq!(finish(&events, seqs[2]), Finish::Length);
}

#[test]
fn an_answer_that_fits_no_plan_is_a_fault_and_stops_the_engine() {
    let spoils: [fn(&mut StepOutput); 4] = [
        |output| output.step = StepId(7),
        |output| output.seqs.clear(),
        |output| output.seqs[0].draws = Ok(vec![]),
        |output| {
            if let Ok(draws) = &mut output.seqs[0].draws {
                draws.push(draws[0].clone());
            }
        },
    ];
    for spoil in spoils {
        let (mut engine, mut backend) = (engine(config(), limits()), model(limits()));
        engine.submit(Time(0), request(9, 5)).expect("it fits");
        let mut output = half_step(&mut engine, &mut backend);
        spoil(&mut output);
        let fault = engine.commit(Time(0), output).expect_err("it doesn't fit");
        assert_eq!(engine.fault(), Some(&fault));
        assert_eq!(engine.plan(Time(0)), None);
    }
}

fn with_matcher(matcher: Thirds, drafts: &[u32]) -> (Finish, Vec<TokenId>) {
    let config = EngineConfig {
        rejected_drafts: RejectedDrafts::Pad,
        ..config()
    };
    let (mut engine, mut backend) = (engine(config, limits()), model(limits()));
    let mut constrained = request(9, 12);
    constrained.matcher = Some(Box::new(matcher));
    constrained.end_tokens = vec![END];
    let seq = engine.submit(Time(0), constrained).expect("it fits");
    let output = drafts.iter().map(|&token| TokenId(token)).collect();
    engine.set_drafter(
        seq,
        Drafter::Replay {
            output,
            depths: vec![4],
        },
    );
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    (finish(&events, seq), tokens(&events, seq))
}

#[test]
fn a_matcher_bounds_what_is_drawn_with_and_without_drafts() {
    let (_, plain) = with_matcher(Thirds::default(), &[]);
    for (depth, token) in plain.iter().enumerate().filter(|(_, token)| **token != END) {
        assert_eq!((token.0 as usize + depth) % 3, 0);
    }
    // Right, wrong but allowed, and forbidden drafts.
    let right: Vec<u32> = plain.iter().map(|token| token.0).collect();
    let allowed: Vec<u32> = right.iter().map(|token| (token + 3) % 48).collect();
    let forbidden: Vec<u32> = right.iter().map(|token| (token + 1) % 48).collect();
    for drafts in [right, allowed, forbidden] {
        assert_eq!(with_matcher(Thirds::default(), &drafts).1, plain);
    }
}

#[test]
fn a_matcher_that_fails_ends_its_sequence_by_name() {
    let (_, truth) = with_matcher(Thirds::default(), &[]);
    let drafts: Vec<u32> = truth.iter().map(|token| token.0).collect();
    let kinds = [
        (
            Thirds {
                broken_at: Some(3),
                ..Thirds::default()
            },
            "out of fuel",
            3,
        ),
        (
            Thirds {
                is_liar: true,
                ..Thirds::default()
            },
            "not allowed",
            0,
        ),
        (
            Thirds {
                leaks: 1,
                ..Thirds::default()
            },
            "were rolled back",
            0,
        ),
    ];
    for (matcher, words, num_tokens) in kinds {
        let drafts = if matcher.leaks > 0 { &drafts[..] } else { &[] };
        let (finish, tokens) = with_matcher(matcher, drafts);
        let Finish::Error(RequestError::Matcher(message)) = finish else {
            panic!("{words}: {finish:?}");
        };
        assert!(message.contains(words), "{message}");
        assert_eq!(tokens, truth[..num_tokens]);
    }
}

/// A sequence under `Thirds` beside a free one, with drafts that are right.
fn constrained_and_free() -> (Engine, Fingerprint) {
    let (_, truth) = with_matcher(Thirds::default(), &[]);
    let (mut engine, backend) = (engine(config(), limits()), model(limits()));
    let mut constrained = request(9, 12);
    constrained.matcher = Some(Box::new(Thirds::default()));
    constrained.end_tokens = vec![END];
    let seq = engine.submit(Time(0), constrained).expect("it fits");
    engine.set_drafter(
        seq,
        Drafter::Replay {
            output: truth,
            depths: vec![2],
        },
    );
    engine.submit(Time(0), request(7, 12)).expect("it fits");
    (engine, backend)
}

/// What a driver may do wrong with the jobs of a step.
type Mistake = fn(&mut Engine, &lockstep_step::StepPlan) -> lockstep_step::MaskSet;

#[test]
fn a_lost_job_ends_its_own_sequence_by_name() {
    let mistakes: [(Mistake, &str); 4] = [
        (
            |engine, plan| {
                drop(engine.take_mask_jobs(plan));
                engine.finish_masks(plan, vec![])
            },
            "the job is lost",
        ),
        (
            |engine, plan| {
                let jobs = engine.take_mask_jobs(plan);
                let lost = |job: &MaskJob| MaskDone::lost(job.id(), "a worker panicked".into());
                let done = jobs.iter().map(lost).collect();
                engine.finish_masks(plan, done)
            },
            "a worker panicked",
        ),
        (
            // Too late: the masks were handed out without it.
            |engine, plan| {
                let jobs = engine.take_mask_jobs(plan);
                let masks = engine.finish_masks(plan, vec![]);
                let done = jobs.into_iter().map(MaskJob::run).collect();
                drop(engine.finish_masks(plan, done));
                drop(engine.take_mask_jobs(plan));
                masks
            },
            "were not filled before",
        ),
        (
            |engine, plan| {
                drop(engine.take_mask_jobs(plan));
                lockstep_step::MaskSet {
                    rows: vec![None; plan.num_mask_rows as usize],
                }
            },
            "were not filled before",
        ),
    ];
    for (mistake, words) in mistakes {
        for num_good_steps in 0..3 {
            let (mut engine, mut backend) = constrained_and_free();
            for _ in 0..num_good_steps {
                run_step(&mut engine, &mut backend, Time(0)).expect("no invariant breaks");
            }
            let plan = engine.plan(Time(0)).expect("there is work");
            let forward = backend.forward(&plan).expect("the plan is right");
            let masks = mistake(&mut engine, &plan);
            let output = backend.sample(forward, &masks).expect("it draws");
            engine.commit(Time(0), output).expect("no invariant breaks");
            engine.check_invariants().expect("after a commit");
            let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
            let Finish::Error(RequestError::Matcher(message)) = finish(&events, SeqId(0)) else {
                panic!("{words}: it lost its matcher");
            };
            assert!(message.contains(words), "{message}");
            assert_eq!(finish(&events, SeqId(1)), Finish::Length);
        }
    }
}

#[test]
fn masks_filled_twice_are_the_same_masks() {
    let (mut engine, mut backend) = constrained_and_free();
    while let Some(plan) = engine.plan(Time(0)) {
        let masks = engine.fill_masks(&plan);
        assert_eq!(engine.fill_masks(&plan), masks);
        assert_eq!(masks.rows.len(), plan.num_mask_rows as usize);
        let forward = backend.forward(&plan).expect("the plan is right");
        let output = backend.sample(forward, &masks).expect("it draws");
        engine.commit(Time(0), output).expect("no invariant breaks");
    }
    assert!(engine.stats().totals.num_drafts_accepted > 3);
}

#[test]
fn a_matcher_comes_home_to_a_step_that_is_over_or_a_sequence_that_is_gone() {
    // The step failed meanwhile, with everybody in it.
    let (mut engine, mut backend) = constrained_and_free();
    let plan = engine.plan(Time(0)).expect("there is work");
    let jobs = engine.take_mask_jobs(&plan);
    engine.fail_step(Time(0), plan.step, "no power".into());
    let done = jobs.into_iter().map(MaskJob::run).collect();
    let masks = engine.finish_masks(&plan, done);
    assert!(masks.rows.iter().all(Option::is_none));
    assert!(!engine.has_work());
    // An old plan has no jobs, whoever asks.
    engine.submit(Time(0), request(9, 3)).expect("it fits");
    assert!(engine.take_mask_jobs(&plan).is_empty());
    run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    // The sequence was aborted meanwhile.
    let (mut engine, mut backend) = constrained_and_free();
    let plan = engine.plan(Time(0)).expect("there is work");
    let forward = backend.forward(&plan).expect("the plan is right");
    let jobs = engine.take_mask_jobs(&plan);
    assert_eq!(jobs.len(), 1, "the free one has none");
    assert!(engine.abort(SeqId(0)));
    let done = jobs.into_iter().map(MaskJob::run).collect();
    let masks = engine.finish_masks(&plan, done);
    let output = backend.sample(forward, &masks).expect("it draws");
    engine.commit(Time(0), output).expect("no invariant breaks");
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    assert_eq!(finish(&events, SeqId(0)), Finish::Aborted);
    assert_eq!(finish(&events, SeqId(1)), Finish::Length);
}

/// Takes a token in a window, but refuses the same token there now and then.
struct Fickle {
    inner: Thirds,
    num_refusals: u32,
}

impl Matcher for Fickle {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        self.inner.fill(mask)
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        if self.num_refusals > 0 {
            self.num_refusals -= 1;
            return Err(MatcherError::Broken("not now".into()));
        }
        self.inner.consume(token)
    }

    fn rollback(&mut self, num_tokens: u32) {
        self.inner.rollback(num_tokens);
    }

    fn depth(&self) -> u32 {
        self.inner.depth()
    }

    fn can_finish(&self) -> bool {
        self.inner.can_finish()
    }
}

#[test]
fn a_draw_without_its_mask_never_counts() {
    // The window ends early, though the draft is drawn and taken at the commit. What was drawn after it
    // had no mask.
    let run = |num_refusals, drafts: &[TokenId]| {
        // Trimmed, the draft would not come that far.
        let config = EngineConfig {
            rejected_drafts: RejectedDrafts::Pad,
            ..config()
        };
        let (mut engine, mut backend) = (engine(config, limits()), model(limits()));
        let mut constrained = request(9, 12);
        constrained.matcher = Some(Box::new(Fickle {
            inner: Thirds::default(),
            num_refusals,
        }));
        constrained.end_tokens = vec![END];
        let seq = engine.submit(Time(0), constrained).expect("it fits");
        let (output, depths) = (drafts.to_vec(), vec![4]);
        engine.set_drafter(seq, Drafter::Replay { output, depths });
        let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
        (tokens(&events, seq), engine.stats().totals)
    };
    let (truth, plain) = run(0, &[]);
    assert_eq!((plain.num_mask_rows_left_out, plain.num_drafts), (0, 0));
    let (tokens, totals) = run(1, &truth);
    assert_eq!(tokens, truth);
    assert!(totals.num_mask_rows_left_out >= 4, "{totals:?}");
}

#[test]
fn a_reasoning_budget_closes_reasoning_and_content_follows() {
    let (mut engine, mut backend) = (engine(config(), limits()), model(limits()));
    let mut thinking = request(9, 12);
    thinking.tags.reasoning = true;
    thinking.tags.starts_in_reasoning = true;
    thinking.sampling.bias = vec![(THINK_CLOSE, -50.0)];
    thinking.reasoning = Some(ReasoningBudget {
        max_tokens: 4,
        close: vec![THINK_CLOSE],
    });
    let seq = engine.submit(Time(0), thinking).expect("it fits");
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    let tokens = tokens(&events, seq);
    assert_eq!(
        tokens.iter().position(|&token| token == THINK_CLOSE),
        Some(4)
    );
    let Some(EventKind::Finished(finished)) = events.last().map(|event| &event.kind) else {
        panic!("the last event is the end");
    };
    assert_eq!(finished.usage.reasoning_tokens, 5);
    assert_eq!(finished.usage.completion_tokens, 12);
    assert!(
        events
            .iter()
            .any(|event| matches!(event.kind, EventKind::Content(_)))
    );
}

#[test]
fn a_script_is_said_word_for_word() {
    let mut model_config = FingerprintConfig::new(limits());
    let output: Vec<TokenId> = [7, 8, 9, 4, 5, 0].map(TokenId).to_vec();
    model_config.scripts = vec![Script {
        when: vec![],
        output: output.clone(),
    }];
    let (mut engine, mut backend) = (engine(config(), limits()), Fingerprint::new(model_config));
    let mut scripted = request(9, 12);
    scripted.end_tokens = vec![END];
    let seq = engine.submit(Time(0), scripted).expect("it fits");
    let events = run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
    assert_eq!(tokens(&events, seq), output);
    assert_eq!(finish(&events, seq), Finish::EndToken(END));
}

#[test]
fn waiting_is_measured_by_the_time_that_is_handed_in() {
    let mut engine = engine(config(), limits());
    engine.submit(Time(100), request(9, 5)).expect("it fits");
    engine.submit(Time(250), request(9, 5)).expect("it fits");
    assert_eq!(engine.stats().oldest_waiting_us, 150);
    assert_eq!(engine.stats().num_waiting_tokens, 18);
    assert!(engine.plan(Time(300)).is_some());
    let stats = engine.stats();
    assert_eq!(
        (
            stats.num_running,
            stats.num_waiting,
            stats.oldest_waiting_us
        ),
        (2, 0, 0)
    );
}
