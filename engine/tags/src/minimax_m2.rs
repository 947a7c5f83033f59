//! MiniMax-M2 to M2.7: `<invoke name="…">` with `<parameter name="…">` values, in a
//! `<minimax:tool_call>` block. A value stands flush between its tags: blanks are data.

use crate::types::Dialect;
use crate::xml_invoke::Spelling;
use crate::xml_section::Block;
use crate::xml_values::{Layout, Written};

static SPELLING: Spelling = Spelling {
    invoke_open: "<invoke name=\"",
    name_end: "\">",
    invoke_close: "</invoke>",
    param_open: "<parameter name=\"",
    key_ends: &[("\">", Written::Untyped)],
    param_close: "</parameter>",
    layout: Layout::Flush,
    dialect: Some(Dialect::Json),
    next: "`<parameter name=` or `</invoke>`",
};

/// The block around calls.
pub(crate) static BLOCK: Block = Block {
    tags: &[("<minimax:tool_call>", "</minimax:tool_call>")],
    spelling: &SPELLING,
    may_be_empty: true,
    next: "`<invoke name=` or `</minimax:tool_call>`",
};

/// The tags that have meaning when tools are offered.
pub(crate) const CALL_TAGS: [&str; 6] = [
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"",
    "</invoke>",
    "<parameter name=\"",
    "</parameter>",
];
/// The token that ends a turn.
pub(crate) const STOPS: [&str; 1] = ["[e~["];
