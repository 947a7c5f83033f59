//! Fills masks on threads of its own while the driver's thread computes the forward pass. What comes out
//! is the same with any number of threads, none included; in simulation there is none.
//!
//! It must never decide anything: which jobs there are, and what becomes of them, is the engine's.

use crate::time::Clock;
use lockstep_core::{MaskDone, MaskJob};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Jobs of a step that are worth waking threads for.
const JOBS_MIN: usize = 4;

/// The threads. They end when this is dropped.
pub(crate) struct MaskWorkers {
    queue: Arc<Queue>,
    clock: Clock,
    num_threads: usize,
}

/// The masks of one step while they are being filled.
#[must_use = "the matchers in it must come back"]
pub(crate) struct Pending<'a> {
    queue: &'a Queue,
    clock: Clock,
    filled: Receiver<Filled>,
}

/// Masks that were filled, in no order.
#[derive(Default)]
pub(crate) struct Filled {
    pub(crate) done: Vec<MaskDone>,
    /// Time spent on filling, all threads together, in microseconds.
    pub(crate) busy_us: u64,
}

/// A job and the step that waits for it.
struct Task {
    job: MaskJob,
    sender: Sender<Filled>,
}

/// What waits for a thread.
struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    is_closed: bool,
}

impl MaskWorkers {
    /// Starts the threads; in simulation there are none, whatever was asked for.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn new(num_threads: usize, clock: Clock) -> std::io::Result<MaskWorkers> {
        let num_threads = if cfg!(madsim) { 0 } else { num_threads };
        let workers = MaskWorkers {
            queue: Arc::new(Queue {
                waiting: Mutex::default(),
                more: Condvar::new(),
            }),
            clock,
            num_threads,
        };
        for idx in 0..num_threads {
            let queue = workers.queue.clone();
            let thread = thread::Builder::new().name(format!("lockstep-masks-{idx}"));
            thread.spawn(move || work(&queue, clock))?;
        }
        Ok(workers)
    }

    /// Hands out the jobs of a step.
    pub(crate) fn start(&self, jobs: Vec<MaskJob>) -> Pending<'_> {
        let (sender, filled) = channel();
        let num_jobs = jobs.len();
        if !jobs.is_empty() {
            let tasks = jobs.into_iter().map(|job| Task {
                job,
                sender: sender.clone(),
            });
            self.queue.waiting().tasks.extend(tasks);
            // A few masks are filled sooner than a thread is awake.
            if self.num_threads > 0 && num_jobs >= JOBS_MIN {
                self.queue.more.notify_all();
            }
        }
        Pending {
            queue: &self.queue,
            clock: self.clock,
            filled,
        }
    }
}

impl Drop for MaskWorkers {
    fn drop(&mut self) {
        self.queue.waiting().is_closed = true;
        self.queue.more.notify_all();
    }
}

impl Pending<'_> {
    /// Waits for all of them. What no thread has taken yet is done here.
    pub(crate) fn collect(self) -> Filled {
        while let Some(task) = self.queue.take() {
            task.run(self.clock);
        }
        // This ends when the last task is gone, even if a thread died with it: then the engine sees
        // which job is missing.
        let mut all = Filled::default();
        for filled in self.filled {
            all.done.extend(filled.done);
            all.busy_us += filled.busy_us;
        }
        all
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // No job runs under the lock, so what it guards is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Task> {
        self.waiting().tasks.pop_front()
    }

    /// The next task, once there is one. None when it is over.
    fn wait(&self) -> Option<Task> {
        let mut waiting = self.waiting();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(task) = waiting.tasks.pop_front() {
                return Some(task);
            }
            let woken = self.more.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One thread.
fn work(queue: &Queue, clock: Clock) {
    while let Some(task) = queue.wait() {
        task.run(clock);
    }
}

impl Task {
    /// Runs the job. A panic in it is the end of its sequence and of nothing else.
    fn run(self, clock: Clock) {
        let (id, start) = (self.job.id(), clock.now());
        let done = catch_unwind(AssertUnwindSafe(|| self.job.run())).unwrap_or_else(|panic| {
            let words = words(panic.as_ref());
            tracing::error!("filling masks of {:?} panicked: {words}", id.seq);
            MaskDone::lost(id, format!("the matcher panicked: {words}"))
        });
        // If nobody waits any more, the step is over.
        let _ = self.sender.send(Filled {
            done: vec![done],
            busy_us: clock.now().since(start),
        });
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no words")
}

#[cfg(test)]
mod tests;
