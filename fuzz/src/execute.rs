//! Runs a target on one input. A panic is caught, told and kept, on whichever thread it happened.

use crate::corpus::keep_crash;
use crate::targets::{Target, num_held};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};

/// What one execution came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The law held.
    Held,
    /// The input is no case of the target: nothing was compared.
    NoCase,
    /// It did not.
    Failed {
        /// Every panic, with its place.
        panics: Vec<String>,
    },
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn panics() -> std::sync::MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Executes a target. Panics of other threads that it uses count as its own, so that only one target may
/// run in a process at a time; tests of one process take turns.
pub fn execute(target: &Target, bytes: &[u8]) -> Execution {
    static TURN: Mutex<()> = Mutex::new(());
    static HOOK: Once = Once::new();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            panics().push(info.to_string());
            before(info);
        }));
    });
    panics().clear();
    let held_before = num_held();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.check)(bytes)));
    let panics = std::mem::take(&mut *panics());
    if outcome.is_err() || !panics.is_empty() {
        return Execution::Failed { panics };
    }
    match num_held() > held_before {
        true => Execution::Held,
        false => Execution::NoCase,
    }
}

/// What is printed of a failure: the target, the input, and how to run it again.
pub fn tell(target: &Target, path: &std::path::Path, panics: &[String]) -> String {
    let (name, path) = (target.name, path.display());
    let panics = panics.join("\n");
    format!(
        "target {name} failed: {panics}\ninput: {path}\n\
         again: cargo run --bin lockstep-fuzz -- run {name} {path}"
    )
}

/// Keeps the input of a failure. If it can't be written, the bytes themselves are told.
pub fn keep(target: &Target, bytes: &[u8]) -> PathBuf {
    match keep_crash(target.name, bytes) {
        Ok(path) => path,
        Err(error) => PathBuf::from(format!("({error}) {bytes:?}")),
    }
}
