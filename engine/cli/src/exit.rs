//! What the program ends with: codes that mean something, and errors that say what to do next. It must
//! never be used for a request's own failure inside the server, which is an answer and not an end.

use crate::terminal::Paint;
use std::{fmt::Display, process::ExitCode};

/// Why the program ended. The numbers are listed in `docs/user/install.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A check failed, which is what a command was asked for and no failure of its own.
    Check = 1,
    /// The command line is wrong; clap ends with the same code.
    Usage = 2,
    /// An input can't be used: a model, a prompt, a tools file.
    Input = 3,
    /// The engine or the server failed while it ran.
    Failed = 4,
    /// What was to be judged could not be: too little of it came, or the check itself broke.
    Unjudged = 5,
    /// A check says one thing once and another thing later, or not what it was said to say.
    Unstable = 6,
    /// The user interrupted.
    Interrupted = 130,
}

/// An error to end with.
#[derive(Debug)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// What went wrong.
    pub what: String,
    /// What to do next; may be empty.
    pub next: String,
}

impl Failure {
    /// The command line is wrong.
    pub fn usage(what: impl Display, next: impl Display) -> Failure {
        Failure {
            exit: Exit::Usage,
            what: what.to_string(),
            next: next.to_string(),
        }
    }

    /// An input can't be used.
    pub fn input(what: impl Display, next: impl Display) -> Failure {
        Failure {
            exit: Exit::Input,
            what: what.to_string(),
            next: next.to_string(),
        }
    }

    /// The engine or the server failed.
    pub fn failed(what: impl Display) -> Failure {
        let next = "this is a bug or a fault of the machine; run again with RUST_LOG=debug";
        Failure {
            exit: Exit::Failed,
            what: what.to_string(),
            next: next.to_owned(),
        }
    }
}

impl Failure {
    /// Says it on standard error, and what to do next.
    pub fn report(&self) {
        let paint = Paint::stderr();
        eprintln!("{} {}", paint.red("error:"), self.what);
        if !self.next.is_empty() {
            eprintln!("  {} {}", paint.dim("→"), self.next);
        }
    }
}

/// Ends with what a command came to.
pub fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.exit as u8)
        }
    }
}
