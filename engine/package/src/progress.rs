//! How slow work tells an onlooker how far it is.
//!
//! It must never change what is done: a package opened with a progress bar is the same package.

/// An onlooker of slow work. Calls come in order: `begin`, any number of `advance`, `end`.
pub trait Progress {
    /// Work called `what` starts, of `total` units (bytes where the name says so); 0 where it isn't
    /// known.
    fn begin(&self, what: &str, total: u64);
    /// `by` more units are done.
    fn advance(&self, by: u64);
    /// The work is over, well or not.
    fn end(&self);
}

/// The onlooker that looks away.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _by: u64) {}
    fn end(&self) {}
}
