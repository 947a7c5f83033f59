//! ctrl-c in a conversation: the first one stops the answer that is being written; where none is, the
//! program ends. It must never be used by `serve`, which drains instead.

use crate::exit::{Exit, Failure};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Listens for ctrl-c.
pub struct Interrupt {
    answering: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts to listen.
    ///
    /// # Errors
    /// If the system grants no signal handler.
    pub fn listen() -> Result<Interrupt, Failure> {
        let answering = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let runtime = runtime.map_err(|error| Failure::failed(error.to_string()))?;
        let shared = (Arc::clone(&answering), Arc::clone(&asked));
        thread::spawn(move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    let (answering, asked) = (&shared.0, &shared.1);
                    if !answering.load(Ordering::SeqCst) || asked.swap(true, Ordering::SeqCst) {
                        eprintln!();
                        std::process::exit(Exit::Interrupted as i32);
                    }
                }
            });
        });
        Ok(Interrupt { answering, asked })
    }

    /// An answer begins.
    pub fn begin(&self) {
        self.asked.store(false, Ordering::SeqCst);
        self.answering.store(true, Ordering::SeqCst);
    }

    /// The answer is over.
    pub fn end(&self) {
        self.answering.store(false, Ordering::SeqCst);
    }

    /// Whether the answer is to be stopped; stays true until the next one begins.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}
