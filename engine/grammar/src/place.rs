//! The places that an output can stand at. What moves it from one to the next is the boundary.

use crate::nesting::Nesting;
use crate::spellings::Partial;
use lockstep_tags::Fence;

/// Line feeds that a template may put before an answer or between calls.
pub(crate) const LAYOUT_MAX: u8 = 2;

/// Where an output stands.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Nothing but blanks so far, and perhaps the beginning of `<think>`.
    Start {
        partial: Partial,
        layout_left: u8,
        fence: Fence,
    },
    Reasoning(Partial),
    /// In an answer that may be any text.
    Free {
        partial: Partial,
        fence: Fence,
        num_calls: u32,
    },
    /// In an answer that may not, outside calls and before any text of it.
    Between {
        num_calls: u32,
        layout_left: u8,
    },
    /// In an answer under a grammar: the last session holds it.
    Constrained {
        partial: Partial,
        complete: bool,
    },
    /// In a call: the last session holds it. What comes after it is kept.
    Call {
        partial: Partial,
        fence: Option<Fence>,
        num_calls: u32,
        nesting: Nesting,
    },
}
