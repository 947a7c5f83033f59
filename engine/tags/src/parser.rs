//! Splits one output into reasoning, content and calls while it arrives.
//! It must never let the cut of the pushed text show in what it says, nor lose a byte.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::channels::{Channels, THINK_CLOSE, THINK_OPEN};
use crate::event::{Delivery, Ended, Finished, Sink, TagError, TagEvent};
use crate::format::TagFormat;
use crate::harmony::Messages;
use crate::json::is_blank;
use crate::lexer::{Lexeme, Lexer};
use crate::schema::ToolSet;
use lockstep_step::planted;

/// How large the markup of one call may grow, and so what a parser holds at most.
pub const CALL_BYTES_MAX: usize = 16 << 20;

/// How one output is to be read.
#[derive(Clone, Debug)]
pub struct ParserOptions {
    /// The model's tag format.
    pub format: TagFormat,
    /// Whether the prompt left thinking open, see [`starts_in_reasoning`].
    pub starts_in_reasoning: bool,
    /// Whether think tags have meaning at all.
    pub reasoning: bool,
    /// When a call's events come.
    pub delivery: Delivery,
    /// The offered tools; without any, call tags are text.
    pub tools: Arc<ToolSet>,
}

/// The start state from the end of the rendered prompt: reasoning if it ends in `<think>`,
/// blanks after it allowed.
pub fn starts_in_reasoning(prompt_tail: &str) -> bool {
    prompt_tail.trim_end_matches(is_blank).ends_with(THINK_OPEN)
}

/// Reads one output, text in, events out.
pub struct TagParser {
    lexer: Lexer,
    machine: Machine,
    failed: Option<TagError>,
    finished: bool,
}

impl TagParser {
    /// A parser at the start of an output.
    pub fn new(options: ParserOptions) -> Self {
        let mut tags = Vec::new();
        let machine = match options.format {
            TagFormat::Harmony => {
                tags.extend(options.format.call_tags());
                let (tools, delivery) = (options.tools, options.delivery);
                Machine::Messages(Box::new(Messages::new(tools, delivery, CALL_BYTES_MAX)))
            }
            _ => {
                if options.reasoning {
                    tags.extend([THINK_OPEN, THINK_CLOSE]);
                }
                tags.extend(options.format.stops());
                // Planted: waybarrios/vllm-mlx#168.
                let is_exclusive = planted!(ReasoningExcludesCalls) && options.starts_in_reasoning;
                if !options.tools.is_empty() && !is_exclusive {
                    tags.extend(options.format.call_tags());
                }
                Machine::Channels(Box::new(Channels::new(options)))
            }
        };
        TagParser {
            lexer: Lexer::new(tags),
            machine,
            failed: None,
            finished: false,
        }
    }

    /// Takes more text, cut anywhere between characters, and appends what it makes certain to
    /// `out`. An error ends the parse: later text is ignored, the events before it stand.
    pub fn push(&mut self, text: &str, out: &mut Vec<TagEvent>) -> Result<(), TagError> {
        if self.failed.is_some() || self.finished {
            return Ok(());
        }
        let (machine, mut sink) = (&mut self.machine, Sink(out));
        #[cfg(planted)]
        let mut increment = crate::misdeeds::Increment::default();
        let pushed = self.lexer.push(text, |lexeme| {
            #[cfg(planted)]
            let Some(lexeme) = increment.passes(lexeme, machine) else {
                return Ok(());
            };
            machine.take(lexeme, &mut sink)
        });
        self.failed = pushed.clone().err();
        pushed
    }

    /// The output is over. Flushes text held back as a possible tag. After a failed push this
    /// gives the same error again.
    pub fn finish(&mut self, ended: Ended, out: &mut Vec<TagEvent>) -> Result<Finished, TagError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.finished {
            return Ok(Finished {
                num_calls: self.num_calls(),
                dropped_call: None,
            });
        }
        self.finished = true;
        let held = self.lexer.take_held();
        let finished = self.machine.finish(&held, ended, &mut Sink(out));
        self.failed = finished.clone().err();
        finished
    }

    /// Whether the text that comes next is reasoning, as far as is certain.
    pub fn in_reasoning(&self) -> bool {
        match &self.machine {
            Machine::Channels(channels) => channels.in_reasoning(),
            Machine::Messages(messages) => messages.in_reasoning(),
        }
    }

    /// Whether the parser is inside a call: from where an opener certainly starts one to its end.
    pub fn in_call(&self) -> bool {
        match &self.machine {
            Machine::Channels(channels) => channels.in_call(),
            Machine::Messages(messages) => messages.in_call(),
        }
    }

    #[cfg(test)]
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    fn num_calls(&self) -> u32 {
        self.machine.num_calls()
    }
}

/// What the lexemes of an output are fed to.
pub(crate) enum Machine {
    /// Think tags and call tags in a flow of text.
    Channels(Box<Channels>),
    /// Messages with headers.
    Messages(Box<Messages>),
}

impl Machine {
    pub(crate) fn num_calls(&self) -> u32 {
        match self {
            Machine::Channels(channels) => channels.num_calls,
            Machine::Messages(messages) => messages.num_calls,
        }
    }

    fn take(&mut self, lexeme: Lexeme<'_>, sink: &mut Sink<'_>) -> Result<(), TagError> {
        match self {
            Machine::Channels(channels) => channels.take(lexeme, sink),
            Machine::Messages(messages) => messages.take(lexeme, sink),
        }
    }

    fn finish(
        &mut self,
        held: &str,
        ended: Ended,
        sink: &mut Sink<'_>,
    ) -> Result<Finished, TagError> {
        match self {
            Machine::Channels(channels) => channels.finish(held, ended, sink),
            Machine::Messages(messages) => messages.finish(held, ended, sink),
        }
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
