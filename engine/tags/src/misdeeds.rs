//! What planted faults do wrongly with what one push brings. It must never be in a build that serves anybody.

use crate::lexer::Lexeme;
use crate::parser::Machine;
use lockstep_step::planted;

/// What a push has brought so far.
#[derive(Default)]
pub(crate) struct Increment {
    num_calls_before: Option<u32>,
    num_tags: usize,
}

impl Increment {
    /// The lexeme, if it is looked at.
    pub(crate) fn passes<'a>(
        &mut self,
        lexeme: Lexeme<'a>,
        machine: &Machine,
    ) -> Option<Lexeme<'a>> {
        let num_calls = machine.num_calls();
        let before = *self.num_calls_before.get_or_insert(num_calls);
        // Planted: sgl-project/sglang#37634.
        if planted!(OneCallPerIncrement) && num_calls > before {
            return None;
        }
        self.num_tags += usize::from(matches!(lexeme, Lexeme::Tag(_)));
        // Planted: vllm-project/vllm#41967.
        if planted!(OneTagPerIncrement) && self.num_tags > 1 && matches!(lexeme, Lexeme::Tag(_)) {
            return None;
        }
        Some(lexeme)
    }
}
