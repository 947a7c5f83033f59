//! What each API's encoder makes of the same updates, and whether that is a word of its automaton: what
//! property tests and fuzzing assert. It must never be called by what serves.

use super::Encoder;
use crate::answer::ChoiceReader;
use crate::anthropic::response::MessageHead;
use crate::anthropic::stream::MessageStream;
use crate::automaton::{check_chat_stream, check_completion_stream, check_message_stream};
use crate::generation::{Cut, Update};
use crate::model::ChatModel;
use crate::openai::chat_response::ChatHead;
use crate::openai::chat_stream::ChatStream;
use crate::openai::completions_response::CompletionStream;
use lockstep_core::EventKind;
use std::sync::Arc;

/// An update of a choice.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// By the engine.
    Event(EventKind),
    /// Its reader was too slow.
    SlowReader,
    /// The server gave up waiting for it.
    ShuttingDown,
    /// The engine is gone.
    EngineStopped,
}

/// The streams of one request in each API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// OpenAI chat.
    pub chat: Vec<u8>,
    /// OpenAI completions.
    pub completion: Vec<u8>,
    /// Anthropic messages: the first choice alone.
    pub message: Vec<u8>,
    num_choices: usize,
}

impl Streams {
    /// Encodes what each choice was told, at least one of them; they take turns, as in a batch.
    pub fn of(model: &Arc<dyn ChatModel>, choices: &[Vec<Said>], include_usage: bool) -> Streams {
        let n = choices.len();
        let head = || ChatHead {
            id: "chatcmpl-1".to_string(),
            created: 0,
            model_name: "tiny".to_string(),
            model: model.clone(),
            seeds: vec![1; n],
            warnings: Vec::new(),
            wants_logprobs: false,
        };
        let readers = |trims: bool| (0..n).map(|_| ChoiceReader::new(trims)).collect::<Vec<_>>();
        let echoes = vec!["once".to_string()];
        let message = MessageHead {
            id: "msg_1".to_string(),
            model_name: "tiny".to_string(),
            prompt_tokens: 1,
            seed: 1,
            warnings: Vec::new(),
            request_id: "req_1".to_string(),
        };
        let chat = ChatStream::new(head(), readers(true), include_usage);
        let completion = CompletionStream::new(head(), readers(false), include_usage, echoes);
        Streams {
            chat: encode(chat, choices),
            completion: encode(completion, choices),
            message: encode(MessageStream::new(message), &choices[..1]),
            num_choices: n,
        }
    }

    /// Whether each is a word of its API's automaton.
    ///
    /// # Errors
    /// The first event that is out of order.
    pub fn check(&self) -> Result<(), String> {
        check_chat_stream(&self.chat, self.num_choices)?;
        check_completion_stream(&self.completion, self.num_choices)?;
        check_message_stream(&self.message)
    }
}

impl From<Said> for Update {
    fn from(said: Said) -> Update {
        match said {
            Said::Event(event) => Update::Event(event),
            Said::SlowReader => Update::Cut(Cut::SlowReader),
            Said::ShuttingDown => Update::Cut(Cut::ShuttingDown),
            Said::EngineStopped => Update::Cut(Cut::EngineStopped("gone".to_string())),
        }
    }
}

fn encode(mut encoder: impl Encoder, choices: &[Vec<Said>]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    let longest = choices.iter().map(Vec::len).max().unwrap_or(0);
    for idx in 0..longest {
        for (choice, said) in choices.iter().enumerate() {
            if let Some(said) = said.get(idx) {
                encoder.update(choice, said.clone().into(), &mut out);
            }
        }
    }
    encoder.end(&mut out);
    out
}
