//! A pool of threads for the loops inside a step. Tasks are claimed in any order by any thread, so they
//! must be disjoint: which thread computes what is never visible in a result.
//!
//! Waiting threads spin for a short while, yielding, and then sleep: a step has hundreds of short loops,
//! and a thread that slept between two of them would cost more than the loop.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The threads, the caller's own included.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    // One loop at a time.
    running: Mutex<()>,
}

const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// Spins before a thread sleeps: some tens of microseconds.
const SPINS: u32 = 4000;

type Task<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    /// `total << 24 | next`: the tasks of the current loop, and the next one to claim. A successful
    /// compare-and-swap claims a task of the loop that is current at that moment, whatever the claimer
    /// thought: that loop can't end before the task is done, so its closure is alive.
    claim: AtomicU64,
    task: UnsafeCell<Option<*const Task<'static>>>,
    num_done: AtomicUsize,
    panicked: AtomicBool,
    num_sleeping: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
}

// SAFETY: `task` is written only by the caller of `run` while no task is claimable, and read only by
// threads that hold a claim; the claim's compare-and-swap orders the two.
unsafe impl Sync for Shared {}
// SAFETY: the pointer is only followed under a claim, while the closure that it names is alive.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool that computes on this many threads, the calling one included. 0 counts as 1.
    pub fn new(num_threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            claim: AtomicU64::new(0),
            task: UnsafeCell::new(None),
            num_done: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            num_sleeping: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let workers = (1..num_threads)
            .filter_map(|idx| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("lockstep-cpu-{idx}"))
                    .spawn(move || shared.work())
                    .ok()
            })
            .collect();
        Pool {
            shared,
            workers,
            running: Mutex::new(()),
        }
    }

    /// The threads that compute, the calling one included.
    pub fn num_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0) .. task(num_tasks - 1)`, each once, and returns when all are done.
    ///
    /// # Panics
    /// If a task panicked, after all others have ended. If there are 2^24 tasks or more.
    pub fn run(&self, num_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() || num_tasks <= 1 {
            for idx in 0..num_tasks {
                task(idx);
            }
            return;
        }
        assert!(
            (num_tasks as u64) <= INDEX_MASK,
            "{num_tasks} tasks in one loop"
        );
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        let task: *const Task<'_> = task;
        // SAFETY: only the lifetime changes. The pointer is followed under a claim only, and this
        // function does not return before every claimed task is done.
        let task: *const Task<'static> = unsafe { std::mem::transmute(task) };
        // SAFETY: the loop before this one is over and nothing is claimable, so nobody reads.
        unsafe { *shared.task.get() = Some(task) };
        shared.num_done.store(0, Ordering::Relaxed);
        shared
            .claim
            .store((num_tasks as u64) << INDEX_BITS, Ordering::SeqCst);
        if shared.num_sleeping.load(Ordering::SeqCst) > 0 {
            let _sleep = shared.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            shared.wake.notify_all();
        }
        let mut own_panic = None;
        while let Some(idx) = shared.claim() {
            if let Err(panic) = shared.run_claimed(idx) {
                own_panic = Some(panic);
            }
        }
        let mut spins = 0;
        while shared.num_done.load(Ordering::Acquire) < num_tasks {
            relax(&mut spins);
        }
        let panicked = shared.panicked.swap(false, Ordering::Relaxed);
        if let Some(panic) = own_panic {
            resume_unwind(panic);
        }
        assert!(!panicked, "a task panicked on another thread");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _sleep = self
                .shared
                .sleep
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.shared.wake.notify_all();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn claim(&self) -> Option<usize> {
        let mut word = self.claim.load(Ordering::Acquire);
        loop {
            let (total, next) = (word >> INDEX_BITS, word & INDEX_MASK);
            if next >= total {
                return None;
            }
            match self.claim.compare_exchange_weak(
                word,
                word + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(next as usize),
                Err(now) => word = now,
            }
        }
    }

    fn run_claimed(&self, idx: usize) -> std::thread::Result<()> {
        // SAFETY: the caller holds a claim of the current loop.
        let task = unsafe { *self.task.get() };
        let result = catch_unwind(AssertUnwindSafe(|| {
            if let Some(task) = task {
                // SAFETY: the loop can't end before this task is counted as done, so the closure lives.
                unsafe { (*task)(idx) };
            }
        }));
        // Before the task counts as done: the caller looks as soon as all are.
        if result.is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
        self.num_done.fetch_add(1, Ordering::Release);
        result
    }

    fn work(&self) {
        let mut spins = 0;
        loop {
            if let Some(idx) = self.claim() {
                spins = 0;
                // A panic is the caller's to raise.
                let _ = self.run_claimed(idx);
                continue;
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if spins < SPINS {
                relax(&mut spins);
                continue;
            }
            let mut sleep = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.num_sleeping.fetch_add(1, Ordering::SeqCst);
            // Published work is seen either here or by the publisher as a sleeper to wake.
            while !self.has_work() && !self.stop.load(Ordering::SeqCst) {
                sleep = self
                    .wake
                    .wait(sleep)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            self.num_sleeping.fetch_sub(1, Ordering::SeqCst);
            spins = 0;
        }
    }

    fn has_work(&self) -> bool {
        let word = self.claim.load(Ordering::SeqCst);
        word & INDEX_MASK < word >> INDEX_BITS
    }
}

fn relax(spins: &mut u32) {
    *spins = spins.saturating_add(1);
    if (*spins).is_multiple_of(64) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_runs_once() {
        for num_threads in [1, 2, 3, 5] {
            let pool = Pool::new(num_threads);
            for num_tasks in [0, 1, 2, 7, 100, 1000] {
                let counts: Vec<AtomicUsize> =
                    (0..num_tasks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..20 {
                    pool.run(num_tasks, &|idx| {
                        counts[idx].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(
                    counts
                        .iter()
                        .all(|count| count.load(Ordering::Relaxed) == 20)
                );
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        for bad in (0..8).cycle().take(80) {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, &|idx| assert_ne!(idx, bad, "planted"));
            }));
            assert!(result.is_err(), "task {bad} panicked");
            let sum = AtomicUsize::new(0);
            pool.run(10, &|idx| {
                sum.fetch_add(idx, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 45);
        }
    }

    #[test]
    fn sleeping_threads_do_not_hold_a_loop_up() {
        let pool = Pool::new(2);
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let sum = AtomicUsize::new(0);
            pool.run(4, &|idx| {
                sum.fetch_add(idx + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 10);
        }
    }
}
