//! From the engine's words to records, and from a recorded request back to one that can be run. It must never leave
//! out what an output depends on.

use crate::record::{
    ConstraintRecord, EventRecord, FinishRecord, News, RequestRecord, TagsRecord, Text, Why,
};
use lockstep_core::{
    Event, EventKind, Finish, Finished, ReasoningBudget, Request, RequestError, Speculation,
};
use lockstep_step::{Matcher, SeqId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};

impl RequestRecord {
    /// A request as it is handed to the engine; the engine's name for it comes later.
    pub fn of(request_id: &str, choice: usize, request: &Request) -> RequestRecord {
        let constraint = match request.matcher.as_deref().map(Matcher::source) {
            None => ConstraintRecord::None,
            Some(Some(source)) => ConstraintRecord::Source(source.to_string()),
            Some(None) => ConstraintRecord::Unknown,
        };
        let reasoning = request.reasoning.as_ref();
        RequestRecord {
            seq: SeqId(u64::MAX),
            request_id: request_id.to_string(),
            choice: choice as u32,
            prompt: request.prompt.clone(),
            sampling: request.sampling.clone(),
            max_tokens: request.max_tokens,
            cache_salt: request.cache_salt.clone(),
            end_tokens: request.end_tokens.clone(),
            stop_strings: request.stop_strings.clone(),
            tags: TagsRecord {
                format: request.tags.format.as_str().to_string(),
                starts_in_reasoning: request.tags.starts_in_reasoning,
                reasoning: request.tags.reasoning,
                eager: request.tags.delivery == Delivery::Eager,
                tools: request.tags.tools.sources().to_vec(),
            },
            reasoning: reasoning.map(|budget| (budget.max_tokens, budget.close.clone())),
            constraint,
            speculation: request.speculation.map(|own| own.to_string()),
        }
    }

    /// The request again, held by this matcher, and with nothing that changes only speed.
    ///
    /// # Errors
    /// What of the record no engine of this program understands.
    pub fn request(&self, matcher: Option<Box<dyn Matcher>>) -> Result<Request, String> {
        Ok(Request {
            prompt: self.prompt.clone(),
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            end_tokens: self.end_tokens.clone(),
            stop_strings: self.stop_strings.clone(),
            tags: self.tags.options()?,
            matcher,
            reasoning: self
                .reasoning
                .as_ref()
                .map(|(max_tokens, close)| ReasoningBudget {
                    max_tokens: *max_tokens,
                    close: close.clone(),
                }),
            speculation: Some(Speculation::OFF),
            token_events: true,
            cache_salt: self.cache_salt.clone(),
        })
    }
}

impl TagsRecord {
    fn options(&self) -> Result<ParserOptions, String> {
        let mut formats = TagFormat::ALL.into_iter();
        let format = formats.find(|format| format.as_str() == self.format);
        let tools = self.tools.iter();
        let tools = ToolSet::new(tools.map(|(name, schema)| (name.clone(), schema.as_deref())));
        Ok(ParserOptions {
            format: format.ok_or_else(|| format!("no format of calls is {:?}", self.format))?,
            starts_in_reasoning: self.starts_in_reasoning,
            reasoning: self.reasoning,
            delivery: match self.eager {
                true => Delivery::Eager,
                false => Delivery::Whole,
            },
            tools: tools.map_err(|error| error.to_string())?.into(),
        })
    }
}

fn plain(text: &str) -> Text {
    Text::Plain(text.as_bytes().to_vec())
}

impl EventRecord {
    /// An event of the engine.
    pub fn of(event: &Event) -> EventRecord {
        let news = match &event.kind {
            EventKind::Scheduled => News::Scheduled,
            EventKind::Preempted => News::Preempted,
            EventKind::Token {
                token,
                bytes,
                logprobs,
                digest,
            } => News::Token {
                token: *token,
                bytes: Text::Plain(bytes.clone()),
                logprobs: logprobs.clone(),
                digest: *digest,
            },
            EventKind::DroppedSpecial { token } => News::Dropped(*token),
            EventKind::Reasoning(text) => News::Reasoning(plain(text)),
            EventKind::Content(text) => News::Content(plain(text)),
            EventKind::CallBegin { index, name } => News::CallBegin(*index, plain(name)),
            EventKind::CallArguments { index, fragment } => {
                News::CallArguments(*index, plain(fragment))
            }
            EventKind::CallEnd { index } => News::CallEnd(*index),
            EventKind::Finished(finished) => News::Finished(finish(finished)),
        };
        EventRecord {
            seq: event.seq,
            at: event.at,
            news,
        }
    }
}

fn finish(finished: &Finished) -> FinishRecord {
    let why = match &finished.finish {
        Finish::EndToken(token) => Why::EndToken(*token),
        Finish::StopString(text) => Why::StopString(plain(text)),
        Finish::Length => Why::Length,
        Finish::ToolCalls => Why::ToolCalls,
        Finish::Aborted => Why::Aborted,
        Finish::Error(error) => Why::Error(error.kind().to_string(), words(error)),
    };
    FinishRecord {
        why,
        prompt_tokens: finished.usage.prompt_tokens,
        completion_tokens: finished.usage.completion_tokens,
        reasoning_tokens: finished.usage.reasoning_tokens,
        cached_tokens: finished.usage.cached_tokens,
        dropped_call: finished.dropped_call.as_deref().map(plain),
    }
}

fn words(error: &RequestError) -> Text {
    plain(&error.to_string())
}
