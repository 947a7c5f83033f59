//! The law of streams: whatever the engine says, in whatever pieces, and however it ends, the bytes
//! are a word of the API's automaton.

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
use lockstep_core::{EventKind, Finish, Finished, RequestError, Usage};
use lockstep_package::Package;
use lockstep_step::TokenId;
use proptest::prelude::*;
use std::sync::{Arc, OnceLock};

fn model() -> Arc<dyn ChatModel> {
    static MODEL: OnceLock<Arc<Package>> = OnceLock::new();
    let model = MODEL.get_or_init(|| Arc::new(Package::embedded().expect("the embedded model")));
    model.clone()
}

fn head(num_choices: usize) -> ChatHead {
    ChatHead {
        id: "chatcmpl-1".to_string(),
        created: 0,
        model_name: "tiny".to_string(),
        model: model(),
        seeds: vec![1; num_choices],
        warnings: Vec::new(),
        wants_logprobs: false,
    }
}

fn token() -> impl Strategy<Value = EventKind> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..3);
    bytes.prop_map(|bytes| EventKind::Token {
        token: TokenId(3),
        bytes,
        logprobs: None,
        digest: Default::default(),
    })
}

fn call(index: u32) -> impl Strategy<Value = Vec<EventKind>> {
    proptest::collection::vec("[a{ \"]{0,3}", 0..3).prop_map(move |fragments| {
        let arguments = fragments
            .into_iter()
            .map(move |fragment| EventKind::CallArguments { index, fragment });
        let name = "f".to_string();
        let mut events = vec![EventKind::CallBegin { index, name }];
        events.extend(arguments);
        events.push(EventKind::CallEnd { index });
        events
    })
}

fn texts(make: fn(String) -> EventKind) -> impl Strategy<Value = Vec<EventKind>> {
    let event = prop_oneof![3 => "[ \na\u{e9}]{0,4}".prop_map(make), 1 => token()];
    proptest::collection::vec(event, 0..4)
}

fn end() -> impl Strategy<Value = Update> {
    let finish = prop_oneof![
        Just(Finish::EndToken(TokenId(0))),
        Just(Finish::StopString("END".to_string())),
        Just(Finish::Length),
        Just(Finish::ToolCalls),
        Just(Finish::Aborted),
        Just(Finish::Error(RequestError::Engine("broken".to_string()))),
    ];
    let finished = (finish, any::<bool>()).prop_map(|(finish, dropped)| {
        Update::Event(EventKind::Finished(Finished {
            finish,
            usage: Usage::default(),
            dropped_call: dropped.then(|| "<tool_call>".to_string()),
        }))
    });
    let stopped = Cut::EngineStopped("gone".to_string());
    prop_oneof![
        3 => finished,
        1 => Just(Update::Cut(Cut::SlowReader)),
        1 => Just(Update::Cut(Cut::ShuttingDown)),
        1 => Just(Update::Cut(stopped)),
    ]
}

/// What one choice gets: reasoning, then content and calls, cut off anywhere, then an end.
fn updates() -> impl Strategy<Value = Vec<Update>> {
    let answer = (
        texts(EventKind::Reasoning),
        texts(EventKind::Content),
        call(0),
        texts(EventKind::Content),
        call(1),
        texts(EventKind::Content),
    );
    (answer, any::<prop::sample::Index>(), end()).prop_map(|(answer, length, end)| {
        let (reasoning, first, call_0, second, call_1, third) = answer;
        let mut events = [reasoning, first, call_0, second, call_1, third].concat();
        events.truncate(length.index(events.len() + 1));
        let events = events.into_iter().map(Update::Event);
        events.chain([end]).collect()
    })
}

fn encode(mut encoder: impl Encoder, choices: &[Vec<Update>]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    // Choices take turns, as they do in a batch.
    let longest = choices.iter().map(Vec::len).max().unwrap_or(0);
    for idx in 0..longest {
        for (choice, updates) in choices.iter().enumerate() {
            if let Some(update) = updates.get(idx) {
                encoder.update(choice, update.clone(), &mut out);
            }
        }
    }
    encoder.end(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_stream_is_a_word(
        choices in proptest::collection::vec(updates(), 1..4),
        include_usage in any::<bool>(),
    ) {
        let n = choices.len();
        let readers = |trims: bool| (0..n).map(|_| ChoiceReader::new(trims)).collect::<Vec<_>>();
        let chat = encode(ChatStream::new(head(n), readers(true), include_usage), &choices);
        prop_assert_eq!(check_chat_stream(&chat, n), Ok(()));
        let echoes = vec!["once".to_string()];
        let stream = CompletionStream::new(head(n), readers(false), include_usage, echoes);
        let completion = encode(stream, &choices);
        prop_assert_eq!(check_completion_stream(&completion, n), Ok(()));
        let head = MessageHead {
            id: "msg_1".to_string(),
            model_name: "tiny".to_string(),
            prompt_tokens: 1,
            seed: 1,
            warnings: Vec::new(),
            request_id: "req_1".to_string(),
        };
        let message = encode(MessageStream::new(head), &choices[..1]);
        prop_assert_eq!(check_message_stream(&message), Ok(()));
    }
}
