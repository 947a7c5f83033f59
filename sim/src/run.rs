//! One seed from its number to a judgement, and many of them on as many threads as are wanted.

use crate::life::Life;
use crate::options::{Feature, Options};
use crate::oracles::{ALL, Complaint, Judgement, Oracles, judge};
use crate::reference::answers;
use crate::stages::{blame, findings, of_panic};
use crate::verdict::Stage;
use crate::world::{self, Run};
use lockstep_step::planted;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

/// What came of a seed.
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// What was judged, where the run came to an end.
    pub judgement: Judgement,
    /// What ended the run instead, in words.
    pub panic: Option<String>,
    /// Who is to blame, and why, where something is wrong.
    pub blame: Option<(Stage, String)>,
    /// A digest of all that happened.
    pub digest: u64,
    /// What happened, for totals.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.panic.is_none() && self.judgement.complaints.is_empty()
    }
}

/// What is made once in a process takes random numbers from the run in which it is made, and that run goes another way
/// than it would later. So it is made before: the embedded model, and whatever libraries keep, by a run of each kind.
fn warm_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = planted::set(None);
        for is_embedded in [false, true] {
            let of_kind = |seed: &u64| Options::of(*seed).has(Feature::Embedded) == is_embedded;
            // The first few of a kind have every sort of request between them.
            for seed in (0..).filter(of_kind).take(2) {
                let run = world::run(&Options::of(seed));
                if let Ok(run) = run {
                    let wishes = run.exchanges.iter().map(|exchange| &exchange.wish);
                    judge(&run, &answers(&run.options, wishes), ALL);
                }
            }
        }
        planted::set(before);
    });
}

/// Runs a seed and judges it.
pub fn try_seed(seed: u64, oracles: Oracles) -> Verdict {
    warm_up();
    let mut verdict = Verdict {
        seed,
        judgement: Judgement::default(),
        panic: None,
        blame: None,
        digest: 0,
        counts: BTreeMap::new(),
    };
    let tried = catch_unwind(AssertUnwindSafe(|| world::run(&Options::of(seed))));
    let run = match tried {
        Ok(Ok(run)) => run,
        Ok(Err((run, words))) => {
            let found = findings(&run).into_iter().next();
            let found = found.map(|finding| (finding.stage, finding.what));
            let of_panic = || of_panic(&run, &words).map(|stage| (stage, words.clone()));
            verdict.blame = found.or_else(of_panic);
            verdict.panic = Some(words);
            return verdict;
        }
        Err(panic) => {
            let own = std::thread::current().id();
            verdict.panic = Some(panic_of(own, panic.as_ref()));
            return verdict;
        }
    };
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let wishes = run.exchanges.iter().map(|exchange| &exchange.wish);
        judge(&run, &answers(&run.options, wishes), oracles)
    }));
    match judged {
        Ok(judgement) => verdict.judgement = judgement,
        Err(panic) => {
            let said = panic_of(std::thread::current().id(), panic.as_ref());
            verdict.panic = Some(format!("while judging: {said}"));
        }
    }
    verdict.digest = digest(&run);
    verdict.counts = counts(&run);
    let found = findings(&run);
    let judgement = &mut verdict.judgement;
    let parts = run.lives.iter().map(|life| life.open().steps.len() as u64);
    judgement.compared.insert("stages", parts.sum());
    judgement
        .complaints
        .extend(found.first().map(|finding| Complaint {
            oracle: "stages",
            request: None,
            what: format!("{}: {}", finding.stage.name(), finding.what),
        }));
    if !verdict.is_good() {
        verdict.blame = blame(&run, &found, &verdict.judgement);
    }
    // Whoever still holds a book holds an empty one.
    for life in &run.lives {
        *life.open() = Life::default();
    }
    verdict
}

/// All that happened, as one number: what clients got and when, every plan, output and event.
fn digest(run: &Run) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    let mut add = |what: std::fmt::Arguments<'_>| {
        // Writing into a hash can't fail.
        let _ = hash.write_fmt(what);
    };
    for exchange in &run.exchanges {
        add(format_args!("{exchange:?}"));
    }
    for life in &run.lives {
        let life = life.open();
        for (id, step) in &life.steps {
            add(format_args!("{id:?} {:?} {:?}", step.plan, step.output));
        }
        add(format_args!(
            "{:?} {:?} {:?}",
            life.events, life.left, life.stats
        ));
    }
    hash.0
}

struct Fnv(u64);

impl std::fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// Runs many seeds, `num_threads` at a time, and hands each verdict over, in the order of the seeds.
pub fn try_seeds(
    (from, count): (u64, u64),
    num_threads: u64,
    oracles: Oracles,
    mut each: impl FnMut(Verdict),
) {
    let next = Arc::new(AtomicU64::new(from));
    let done: Arc<Mutex<BTreeMap<u64, Verdict>>> = Arc::default();
    let (sender, receiver) = std::sync::mpsc::channel();
    for _ in 0..num_threads.max(1) {
        let (next, done, sender) = (next.clone(), done.clone(), sender.clone());
        std::thread::spawn(move || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= from + count {
                    return;
                }
                let verdict = try_seed(seed, oracles);
                if let Ok(mut done) = done.lock() {
                    done.insert(seed, verdict);
                }
                if sender.send(()).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut wanted = from;
    while wanted < from + count && receiver.recv().is_ok() {
        loop {
            let verdict = done.lock().ok().and_then(|mut done| done.remove(&wanted));
            let Some(verdict) = verdict else {
                break;
            };
            each(verdict);
            wanted += 1;
        }
    }
}

/// What was said by panics, by thread, with the place.
static PANICS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Keeps what panics say, in place of printing it.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let said = format!("{place}: {}", words(info.payload()));
        if let Ok(mut panics) = PANICS.lock() {
            panics.insert(format!("{:?}", std::thread::current().id()), said);
        }
    }));
}

/// What a thread's panic said and where, or what can be said without.
pub fn panic_of(thread: std::thread::ThreadId, panic: &(dyn std::any::Any + Send)) -> String {
    let kept = PANICS.lock().ok();
    let kept = kept.and_then(|mut panics| panics.remove(&format!("{thread:?}")));
    kept.unwrap_or_else(|| words(panic))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without words".to_owned())
}

/// What happened in a run, for totals.
fn counts(run: &Run) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    let mut add = |name, count: u64| *counts.entry(name).or_insert(0) += count;
    add("exchanges", run.exchanges.len() as u64);
    add("lives", run.lives.len() as u64);
    for life in &run.lives {
        let life = life.open();
        let totals = &life.stats.totals;
        add("steps", totals.num_steps);
        add("overlapped steps", totals.num_steps_overlapped);
        add("void parts", totals.num_void_parts);
        add("shorter parts", totals.num_shorter_parts);
        add("preemptions", totals.num_preemptions);
        add("drafts", totals.num_drafts);
        add("accepted drafts", totals.num_drafts_accepted);
        add("mask rows", totals.num_mask_rows);
        add("tokens", totals.num_output_tokens);
        add("cached tokens", totals.num_cached_tokens);
        add("recovered tokens", totals.num_recovered_tokens);
        add("evicted blocks", totals.num_evicted_blocks);
        add("left sequences", life.left.len() as u64);
        add("refused", life.refused.len() as u64);
        add("mishaps", life.mishaps.len() as u64);
    }
    counts
}
