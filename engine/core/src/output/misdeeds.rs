//! What planted faults do wrongly with the tokens of an output. It must never be in a build that serves anybody.

use super::{OutputChain, push_content};
use crate::EventKind;
use alloc::{string::String, vec::Vec};
use lockstep_step::planted;
use lockstep_tags::TagEvent;

impl OutputChain {
    /// Whether reasoning is open.
    pub(crate) fn in_reasoning(&self) -> bool {
        self.parser.in_reasoning()
    }

    /// Counts tokens that nothing is said about.
    pub(crate) fn count(&mut self, num_tokens: u32) {
        self.num_tokens += num_tokens;
    }

    /// Counts tokens as reasoning.
    pub(crate) fn count_reasoning(&mut self, num_tokens: usize) {
        self.reasoning.count(num_tokens as u32);
    }

    fn is_inside_block(&self) -> bool {
        self.place.0 + 1 < self.place.1
    }

    /// Counts all of a step's tokens with the first of them.
    pub(super) fn charge(&mut self) {
        // Planted: ikawrakow/ik_llama.cpp#2358.
        if planted!(BudgetChargedAhead) {
            let (idx, len) = self.place;
            self.num_tokens -= 1;
            self.num_tokens += if idx == 0 { len as u32 } else { 0 };
        }
    }

    /// Whether an end is not looked for.
    pub(super) fn overlooks_end(&self) -> bool {
        // Planted: huggingface/transformers#47912.
        planted!(StopOnLastTokenOnly) && self.is_inside_block()
    }

    /// Whether a control token is shown.
    pub(super) fn shows_control(&self) -> bool {
        // Planted: vllm-project/vllm-ascend#9767.
        planted!(AcceptedControlIsShown) && self.is_inside_block()
    }

    /// Searches reasoning for stop strings too.
    pub(super) fn stop_in_reasoning(
        &mut self,
        text: &str,
        kinds: &mut Vec<EventKind>,
    ) -> Option<String> {
        let mut visible = String::new();
        let stop = self.stop.push(text, &mut visible);
        if !visible.is_empty() {
            kinds.push(EventKind::Reasoning(visible));
        }
        stop
    }
}

/// What is left at the end is said without asking whose it is.
pub(super) fn say_directly(text: &mut String, kinds: &mut Vec<EventKind>) {
    push_content(core::mem::take(text), kinds);
}

/// What is left at the end is content, whatever the parser says.
pub(super) fn forget_channels(tags: &mut [TagEvent]) {
    for tag in tags {
        if let TagEvent::Reasoning(text) = tag {
            *tag = TagEvent::Content(core::mem::take(text));
        }
    }
}
