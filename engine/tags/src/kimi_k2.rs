//! Kimi K2 and its successors with the same template: each call is an id that carries the name, and
//! the arguments. An empty section is nothing.

use crate::json_section::{HeadStyle, Spelling};

/// The section around calls.
pub(crate) static SECTION: Spelling = Spelling {
    open: "<|tool_calls_section_begin|>",
    close: "<|tool_calls_section_end|>",
    call_open: "<|tool_call_begin|>",
    head_end: "<|tool_call_argument_begin|>",
    call_close: "<|tool_call_end|>",
    head: HeadStyle::Id,
    may_be_empty: true,
    may_stay_open: true,
    next: "`<|tool_call_begin|>` or `<|tool_calls_section_end|>`",
};

/// The tags that have meaning when tools are offered.
pub(crate) const CALL_TAGS: [&str; 5] = [
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
];
/// The token that ends a turn.
pub(crate) const STOPS: [&str; 1] = ["<|im_end|>"];
