//! From drawn tokens to what a reader sees: detokenizer, tag parser, stop strings, limits.
//! It takes one token at a time and must never know how many tokens a step brought.

mod detokenize;
mod limits;
#[cfg(planted)]
mod misdeeds;
mod stop;

use crate::{EventKind, Finish, Request, RequestError, Vocabulary};
use alloc::{string::String, vec::Vec};
use detokenize::Detokenizer;
use limits::{LengthLimit, ReasoningLimit};
use lockstep_step::{Draw, TokenId, planted};
use lockstep_tags::{Ended, TagEvent, TagParser};
use stop::StopSearch;

/// The output of one sequence while it grows.
pub(crate) struct OutputChain {
    detokenizer: Detokenizer,
    parser: TagParser,
    stop: StopSearch,
    length: LengthLimit,
    reasoning: ReasoningLimit,
    num_tokens: u32,
    num_calls: u32,
    token_events: bool,
    /// Which of how many tokens of its step the next one is.
    #[cfg(planted)]
    pub(crate) place: (usize, usize),
}

/// What tokens made visible, and room for what the tag parser says: both are kept from token to token.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) kinds: Vec<EventKind>,
    tags: Vec<TagEvent>,
}

/// How an output ended.
pub(crate) struct Ending {
    pub(crate) finish: Finish,
    pub(crate) dropped_call: Option<String>,
}

impl From<RequestError> for Ending {
    fn from(error: RequestError) -> Ending {
        Ending {
            finish: Finish::Error(error),
            dropped_call: None,
        }
    }
}

impl OutputChain {
    /// The chain of a request whose output has at most `num_tokens_max` tokens.
    pub(crate) fn new(request: &mut Request, num_tokens_max: u32) -> OutputChain {
        OutputChain {
            detokenizer: Detokenizer::default(),
            parser: TagParser::new(request.tags.clone()),
            stop: StopSearch::new(core::mem::take(&mut request.stop_strings)),
            length: LengthLimit {
                end_tokens: core::mem::take(&mut request.end_tokens),
                num_tokens_max,
            },
            reasoning: ReasoningLimit::new(request.reasoning.take()),
            num_tokens: 0,
            num_calls: 0,
            token_events: request.token_events,
            #[cfg(planted)]
            place: (0, 1),
        }
    }

    /// Tokens of the output so far.
    pub(crate) fn num_tokens(&self) -> u32 {
        self.num_tokens
    }

    /// Of these, the ones drawn while reasoning was open.
    pub(crate) fn num_reasoning_tokens(&self) -> u32 {
        self.reasoning.num_tokens()
    }

    /// Whether a token ends the output.
    pub(crate) fn is_end(&self, token: TokenId) -> bool {
        self.length.end_tokens.contains(&token)
    }

    /// The token that has to come next, where reasoning is closed by force.
    pub(crate) fn forced(&self) -> Option<TokenId> {
        self.reasoning.forced(self.parser.in_reasoning())
    }

    /// Whether a token may have to come next, once `num_in_flight` more that nobody knows yet are there.
    pub(crate) fn may_force(&self, num_in_flight: usize) -> bool {
        let in_reasoning = self.parser.in_reasoning();
        self.reasoning.may_force(in_reasoning, num_in_flight)
    }

    /// Tokens that still fit after `num_in_flight` more.
    pub(crate) fn num_left(&self, num_in_flight: usize) -> usize {
        let num_left = self.length.num_tokens_max.saturating_sub(self.num_tokens);
        (num_left as usize).saturating_sub(num_in_flight)
    }

    /// The most drafts that may follow the committed tokens and `num_in_flight` more: their bonus must fit
    /// too.
    pub(crate) fn drafts_max(&self, num_in_flight: usize) -> usize {
        let fitting = self.num_left(num_in_flight).saturating_sub(1);
        let in_reasoning = self.parser.in_reasoning();
        fitting.min(self.reasoning.drafts_max(in_reasoning, num_in_flight))
    }

    /// Takes a token and appends what it makes visible. After an ending the chain must not be used.
    pub(crate) fn push(
        &mut self,
        draw: Draw,
        vocabulary: &Vocabulary,
        said: &mut Said,
    ) -> Option<Ending> {
        let token = draw.token;
        self.num_tokens += 1;
        #[cfg(planted)]
        self.charge();
        self.reasoning.push(token, self.parser.in_reasoning());
        let is_end = self.is_end(token);
        #[cfg(planted)]
        let is_end = is_end && !self.overlooks_end();
        let is_dropped = !is_end && vocabulary.is_special(token);
        #[cfg(planted)]
        let is_dropped = is_dropped && !self.shows_control();
        let bytes: &[u8] = if is_end || is_dropped {
            &[]
        } else {
            vocabulary.bytes(token)
        };
        if self.token_events {
            said.kinds.push(EventKind::Token {
                token,
                bytes: bytes.into(),
                logprobs: draw.logprobs,
                digest: draw.digest,
            });
        }
        if is_end {
            return Some(self.finish(Ended::Eos, Finish::EndToken(token), said));
        }
        if is_dropped {
            said.kinds.push(EventKind::DroppedSpecial { token });
        }
        let whole = match bytes.is_empty() {
            true => Some(""),
            false => vocabulary.text(token),
        };
        let ending = match whole {
            Some(text) if self.detokenizer.is_idle() => self.read(text, said),
            _ => {
                let mut text = String::new();
                self.detokenizer.push(bytes, &mut text);
                self.read(&text, said)
            }
        };
        if ending.is_some() {
            return ending;
        }
        let is_full = self.num_tokens >= self.length.num_tokens_max;
        is_full.then(|| self.finish(Ended::Length, Finish::Length, said))
    }

    /// Takes text through the parser and the stop search.
    fn read(&mut self, text: &str, said: &mut Said) -> Option<Ending> {
        let parsed = self.parser.push(text, &mut said.tags);
        // What came before an error stands, so a stop string in it comes before the error too.
        if let Some(ending) = self.show(said) {
            return Some(ending);
        }
        let error = parsed.err()?;
        self.flush(&mut said.kinds);
        Some(RequestError::Tag(error).into())
    }

    /// The model or the length ended the output: what is held back is decided now. A stop string that
    /// shows only here still counts as the end, since its last character was drawn in time.
    fn finish(&mut self, ended: Ended, finish: Finish, said: &mut Said) -> Ending {
        let mut text = String::new();
        self.detokenizer.finish(&mut text);
        // Planted: smg-project/smg#2203.
        #[cfg(planted)]
        if planted!(TailSkipsTheParser) {
            misdeeds::say_directly(&mut text, &mut said.kinds);
        }
        if let Some(ending) = self.read(&text, said) {
            return ending;
        }
        let finished = self.parser.finish(ended, &mut said.tags);
        // Planted: smg-project/smg#2203.
        #[cfg(planted)]
        if planted!(TailSkipsTheParser) {
            misdeeds::forget_channels(&mut said.tags);
        }
        if let Some(ending) = self.show(said) {
            return ending;
        }
        // Planted: ggml-org/llama.cpp#9867.
        if !planted!(HeldTextDropped) {
            self.flush(&mut said.kinds);
        }
        match finished {
            Err(error) => RequestError::Tag(error).into(),
            Ok(finished) => Ending {
                finish: if ended == Ended::Eos && finished.num_calls > 0 {
                    Finish::ToolCalls
                } else {
                    finish
                },
                dropped_call: finished.dropped_call,
            },
        }
    }

    /// Turns the parser's events into ours. Content is searched for stop strings; a call in between
    /// breaks a match, so that what came before it can be shown before it.
    fn show(&mut self, said: &mut Said) -> Option<Ending> {
        let kinds = &mut said.kinds;
        for tag in said.tags.drain(..) {
            let kind = match tag {
                TagEvent::Content(text) if self.stop.is_idle() => {
                    push_content(text, kinds);
                    continue;
                }
                TagEvent::Content(text) => {
                    let mut visible = String::new();
                    let stop = self.stop.push(&text, &mut visible);
                    push_content(visible, kinds);
                    if let Some(stop) = stop {
                        return Some(self.stopped(stop));
                    }
                    continue;
                }
                // Planted: vllm-project/vllm#14170.
                #[cfg(planted)]
                TagEvent::Reasoning(text) if planted!(StopInReasoning) => {
                    match self.stop_in_reasoning(&text, kinds) {
                        Some(stop) => return Some(self.stopped(stop)),
                        None => continue,
                    }
                }
                TagEvent::Reasoning(text) => EventKind::Reasoning(text),
                TagEvent::CallBegin { index, name } => EventKind::CallBegin { index, name },
                TagEvent::CallArguments { index, fragment } => {
                    EventKind::CallArguments { index, fragment }
                }
                TagEvent::CallEnd { index } => {
                    self.num_calls += 1;
                    EventKind::CallEnd { index }
                }
            };
            self.flush(kinds);
            kinds.push(kind);
        }
        None
    }

    fn stopped(&self, stop: String) -> Ending {
        Ending {
            finish: if self.num_calls > 0 {
                Finish::ToolCalls
            } else {
                Finish::StopString(stop)
            },
            dropped_call: None,
        }
    }

    fn flush(&mut self, kinds: &mut Vec<EventKind>) {
        let mut visible = String::new();
        self.stop.flush(&mut visible);
        push_content(visible, kinds);
    }
}

fn push_content(text: String, kinds: &mut Vec<EventKind>) {
    if !text.is_empty() {
        kinds.push(EventKind::Content(text));
    }
}

#[cfg(test)]
mod tests;
