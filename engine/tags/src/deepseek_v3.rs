//! DeepSeek-V3 and R1: each call is the word `function`, a separator, a line with the name, and the
//! arguments in a Markdown fence.

use crate::json_section::{HeadStyle, Spelling};

/// The section around calls.
pub(crate) static SECTION: Spelling = Spelling {
    open: "<｜tool▁calls▁begin｜>",
    close: "<｜tool▁calls▁end｜>",
    call_open: "<｜tool▁call▁begin｜>",
    head_end: "<｜tool▁sep｜>",
    call_close: "<｜tool▁call▁end｜>",
    head: HeadStyle::WordThenFence("function"),
    may_be_empty: false,
    may_stay_open: false,
    next: "`<｜tool▁call▁begin｜>`, or `<｜tool▁calls▁end｜>` after a call",
};

/// The tags that have meaning when tools are offered; V3.1 has the same.
pub(crate) const CALL_TAGS: [&str; 5] = [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
];
/// The token that ends a turn, in every DeepSeek format.
pub(crate) const STOPS: [&str; 1] = ["<｜end▁of▁sentence｜>"];
