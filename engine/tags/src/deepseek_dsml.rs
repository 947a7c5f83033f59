//! DeepSeek-V3.2 and V4: invocations in `｜DSML｜` tags. The tags say whether a value is text or
//! JSON, and that beats the schema; a parameter that comes twice is an error.

use crate::xml_invoke::Spelling;
use crate::xml_section::Block;
use crate::xml_values::{Layout, Written};

static SPELLING: Spelling = Spelling {
    invoke_open: INVOKE_OPEN,
    name_end: "\">",
    invoke_close: "</｜DSML｜invoke>",
    param_open: "<｜DSML｜parameter name=\"",
    key_ends: &[
        ("\" string=\"true\">", Written::Text),
        ("\" string=\"false\">", Written::Json),
    ],
    param_close: "</｜DSML｜parameter>",
    layout: Layout::Flush,
    dialect: None,
    next: "`<｜DSML｜parameter name=` or `</｜DSML｜invoke>`",
};

/// Starts a call inside a block; outside of one it is an error.
pub(crate) const INVOKE_OPEN: &str = "<｜DSML｜invoke name=\"";

/// The block around calls: V3.2 calls it `function_calls`, V4 `tool_calls`.
pub(crate) static BLOCK: Block = Block {
    tags: &[
        ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
        ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    ],
    spelling: &SPELLING,
    may_be_empty: false,
    next: "`<｜DSML｜invoke name=` or the end of the block after a call",
};

/// The tags that have meaning when tools are offered.
pub(crate) const CALL_TAGS: [&str; 8] = [
    "<｜DSML｜tool_calls>",
    "</｜DSML｜tool_calls>",
    "<｜DSML｜function_calls>",
    "</｜DSML｜function_calls>",
    INVOKE_OPEN,
    "</｜DSML｜invoke>",
    "<｜DSML｜parameter name=\"",
    "</｜DSML｜parameter>",
];
