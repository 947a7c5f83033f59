//! The driver's steps with masks on no thread and on several: the same events, whatever happens on them.

use super::*;
use crate::driver::tests::{VOCAB_SIZE, driver, limits, metric, plain_request};
use crate::metrics::Metrics;
use lockstep_core::{
    Engine, EngineConfig, Event, EventKind, Finish, Request, RequestError, Vocabulary,
};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig};
use lockstep_step::{Bitmask, Matcher, MatcherError, SeqId, StepId, TokenId};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two tokens that are given, then one of many, over and over. It panics at some depth, and counts the
/// jobs that ran beside the driver's thread.
#[derive(Clone)]
struct Refrain {
    taken: Vec<TokenId>,
    panics_at: Option<usize>,
    elsewhere: Arc<AtomicUsize>,
}

impl Refrain {
    fn given(depth: usize) -> Option<TokenId> {
        (!depth.is_multiple_of(3)).then_some(TokenId(10 + depth as u32 % 3))
    }
}

impl Matcher for Refrain {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        let depth = self.taken.len();
        assert_ne!(self.panics_at, Some(depth), "no more at {depth}");
        if thread::current()
            .name()
            .is_some_and(|name| name.starts_with("lockstep-masks"))
        {
            self.elsewhere.fetch_add(1, Ordering::SeqCst);
        }
        match Refrain::given(depth) {
            Some(token) => mask.allow(token),
            None => (20..VOCAB_SIZE).for_each(|token| mask.allow(TokenId(token))),
        }
        Ok(())
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        let given = Refrain::given(self.taken.len());
        if given.map_or(token.0 < 20, |given| given != token) {
            return Err(MatcherError::Rejected(token));
        }
        self.taken.push(token);
        Ok(())
    }

    fn rollback(&mut self, num_tokens: u32) {
        let num_left = self.taken.len() - num_tokens as usize;
        self.taken.truncate(num_left);
    }

    fn depth(&self) -> u32 {
        self.taken.len() as u32
    }

    fn can_finish(&self) -> bool {
        false
    }

    fn forced(&mut self, num_max: usize) -> Vec<TokenId> {
        let depths = self.taken.len()..self.taken.len() + num_max;
        depths.map_while(Refrain::given).collect()
    }
}

fn request(seed: u64, matcher: Option<Refrain>) -> Request {
    Request {
        matcher: matcher.map(|matcher| Box::new(matcher) as Box<dyn Matcher>),
        ..plain_request(seed)
    }
}

struct Run {
    events: Vec<Event>,
    metrics: Arc<Metrics>,
    /// Rows that were filled on a thread of the pool.
    elsewhere: usize,
}

/// Runs sequences to their end, with matchers that panic at these depths, and without matchers.
fn run_all(
    num_threads: usize,
    matchers: &[Option<Option<usize>>],
    failing_step: Option<u64>,
) -> Run {
    let mut backend = FingerprintConfig::new(limits());
    backend.failing_step = failing_step.map(StepId);
    let mut driver = driver(Fingerprint::new(backend), num_threads);
    let elsewhere = Arc::new(AtomicUsize::new(0));
    for (seed, matcher) in matchers.iter().enumerate() {
        let matcher = matcher.map(|panics_at| Refrain {
            taken: vec![],
            panics_at,
            elsewhere: elsewhere.clone(),
        });
        let request = request(seed as u64, matcher);
        driver
            .engine
            .submit(lockstep_core::Time(0), request)
            .expect("it fits");
    }
    let mut events = vec![];
    while driver.step().expect("no invariant breaks") {
        driver
            .engine
            .check_invariants()
            .expect("every matcher is home");
        events.extend(driver.engine.poll_events());
    }
    driver.metrics.stats(&driver.engine.stats());
    assert!(!driver.engine.has_work());
    Run {
        events,
        metrics: driver.metrics,
        elsewhere: elsewhere.load(Ordering::SeqCst),
    }
}

fn finish(events: &[Event], seq: u64) -> Finish {
    let mut own = events.iter().filter(|event| event.seq == SeqId(seq));
    let last = own.next_back().map(|event| event.kind.clone());
    let Some(EventKind::Finished(finished)) = last else {
        panic!("sequence {seq} never finished: {last:?}");
    };
    finished.finish
}

#[test]
fn any_number_of_threads_gives_the_same_events() {
    let mut matchers = vec![Some(None); 8];
    matchers.extend([None, None, Some(Some(0)), Some(Some(7))]);
    let inline = run_all(0, &matchers, None);
    assert_eq!(inline.elsewhere, 0);
    for num_threads in 1..=3 {
        let run = run_all(num_threads, &matchers, None);
        assert_eq!(run.events, inline.events, "{num_threads} threads");
        for counted in [
            "lockstep_mask_rows_total",
            "lockstep_mask_rows_left_out_total",
            "lockstep_matcher_rollback_tokens_total",
            "lockstep_drafts_total",
            "lockstep_drafts_accepted_total",
        ] {
            let (ours, theirs) = (
                metric(&run.metrics, counted),
                metric(&inline.metrics, counted),
            );
            assert_eq!(ours, theirs, "{counted}");
        }
    }
    assert!(metric(&inline.metrics, "lockstep_drafts_accepted_total") > 100.0);
    assert!(metric(&inline.metrics, "lockstep_matcher_rollback_tokens_total") > 100.0);
    let steps = metric(&inline.metrics, "lockstep_mask_fill_seconds_count");
    assert!(steps > 10.0);
    assert_eq!(
        metric(&inline.metrics, "lockstep_mask_wait_seconds_count"),
        steps
    );
}

#[test]
fn a_panic_ends_its_own_sequence_by_name_wherever_it_happens() {
    for num_threads in [0, 2] {
        let run = run_all(num_threads, &[Some(None), Some(Some(4)), None], None);
        let Finish::Error(RequestError::Matcher(message)) = finish(&run.events, 1) else {
            panic!("its matcher panicked");
        };
        assert!(message.contains("panicked"), "{message}");
        assert!(message.contains("no more at 4"), "{message}");
        assert_eq!(finish(&run.events, 0), Finish::Length);
        assert_eq!(finish(&run.events, 2), Finish::Length);
    }
}

#[test]
fn a_step_that_fails_leaves_nothing_for_the_next_one() {
    let matchers = [Some(None); 6];
    let inline = run_all(0, &matchers, Some(3));
    assert!(matches!(
        finish(&inline.events, 0),
        Finish::Error(RequestError::Engine(_))
    ));
    assert_eq!(run_all(2, &matchers, Some(3)).events, inline.events);
}

#[test]
fn without_constraints_no_thread_is_asked() {
    let run = run_all(2, &[None, None], None);
    assert_eq!(run.elsewhere, 0);
    assert_eq!(
        metric(&run.metrics, "lockstep_mask_fill_seconds_count"),
        0.0
    );
    assert_eq!(metric(&run.metrics, "lockstep_mask_rows_total"), 0.0);
}

/// Jobs of a fresh engine, for as many constrained sequences.
fn jobs(num_seqs: usize, elsewhere: &Arc<AtomicUsize>) -> Vec<MaskJob> {
    let vocabulary = Arc::new(Vocabulary::new(vec![], vec![]));
    let config = EngineConfig::default();
    let mut engine = Engine::new(config, limits(), vocabulary).expect("the limits are fine");
    for seed in 0..num_seqs {
        let matcher = Refrain {
            taken: vec![],
            panics_at: None,
            elsewhere: elsewhere.clone(),
        };
        let request = request(seed as u64, Some(matcher));
        engine
            .submit(lockstep_core::Time(0), request)
            .expect("it fits");
    }
    let plan = engine.plan(lockstep_core::Time(0)).expect("there is work");
    engine.take_mask_jobs(&plan)
}

#[test]
fn threads_take_jobs_while_the_driver_is_busy_and_end_with_their_owner() {
    let elsewhere = Arc::new(AtomicUsize::new(0));
    let workers = MaskWorkers::new(2, Clock::start()).expect("threads");
    let pending = workers.start(jobs(20, &elsewhere));
    // As a forward pass would, this lasts until the threads have done all of it.
    while elsewhere.load(Ordering::SeqCst) < 20 {
        thread::yield_now();
    }
    assert_eq!(pending.collect().done.len(), 20);
    // What nobody collects is no matter to the step after it.
    drop(workers.start(jobs(20, &elsewhere)));
    assert_eq!(workers.start(jobs(3, &elsewhere)).collect().done.len(), 3);
    assert!(workers.start(vec![]).collect().done.is_empty());
    let queue = Arc::downgrade(&workers.queue);
    drop(workers);
    while queue.strong_count() > 0 {
        thread::yield_now();
    }
}
