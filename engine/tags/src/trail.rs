//! What became of each byte of an output. Tests prove by this that none is lost; outside of tests
//! it does nothing, and no parser may ever read it.

#[cfg(test)]
use alloc::string::String;
#[cfg(test)]
use alloc::vec::Vec;

/// What became of a piece of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Reasoning,
    Content,
    /// A call's markup: complete, dropped, or failed.
    Call,
    /// A tag or layout that says what it says by vanishing.
    Layout,
}

/// Every byte of the output in order, with what became of it; neighbours of one fate joined.
#[derive(Default)]
pub(crate) struct Trail {
    #[cfg(test)]
    pub(crate) notes: Vec<(Fate, String)>,
}

impl Trail {
    pub(crate) fn note(&mut self, fate: Fate, text: &str) {
        #[cfg(test)]
        match self.notes.last_mut() {
            _ if text.is_empty() => {}
            Some((last, joined)) if *last == fate => joined.push_str(text),
            _ => self.notes.push((fate, text.into())),
        }
        #[cfg(not(test))]
        let _ = (fate, text);
    }
}
