//! DeepSeek-V3.1: each call is the name, a separator and the arguments, in the tags of V3.

use crate::json_section::{HeadStyle, Spelling};

/// The section around calls.
pub(crate) static SECTION: Spelling = Spelling {
    open: "<｜tool▁calls▁begin｜>",
    close: "<｜tool▁calls▁end｜>",
    call_open: "<｜tool▁call▁begin｜>",
    head_end: "<｜tool▁sep｜>",
    call_close: "<｜tool▁call▁end｜>",
    head: HeadStyle::Name,
    may_be_empty: false,
    may_stay_open: false,
    next: "`<｜tool▁call▁begin｜>`, or `<｜tool▁calls▁end｜>` after a call",
};
