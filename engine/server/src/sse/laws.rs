//! The law of streams: whatever the engine says, in whatever pieces, and however it ends, the bytes
//! are a word of the API's automaton.

use super::words::{Said, Streams};
use crate::model::ChatModel;
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

fn end() -> impl Strategy<Value = Said> {
    let finish = prop_oneof![
        Just(Finish::EndToken(TokenId(0))),
        Just(Finish::StopString("END".to_string())),
        Just(Finish::Length),
        Just(Finish::ToolCalls),
        Just(Finish::Aborted),
        Just(Finish::Error(RequestError::Engine("broken".to_string()))),
    ];
    let finished = (finish, any::<bool>()).prop_map(|(finish, dropped)| {
        Said::Event(EventKind::Finished(Finished {
            finish,
            usage: Usage::default(),
            dropped_call: dropped.then(|| "<tool_call>".to_string()),
        }))
    });
    prop_oneof![
        3 => finished,
        1 => Just(Said::SlowReader),
        1 => Just(Said::ShuttingDown),
        1 => Just(Said::EngineStopped),
    ]
}

/// What one choice gets: reasoning, then content and calls, cut off anywhere, then an end.
fn updates() -> impl Strategy<Value = Vec<Said>> {
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
        let events = events.into_iter().map(Said::Event);
        events.chain([end]).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_stream_is_a_word(
        choices in proptest::collection::vec(updates(), 1..4),
        include_usage in any::<bool>(),
    ) {
        let streams = Streams::of(&model(), &choices, include_usage);
        prop_assert_eq!(streams.check(), Ok(()));
    }
}
