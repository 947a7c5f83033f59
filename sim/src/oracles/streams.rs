//! Every stream that came whole is a word of its API's automaton.

use super::Bench;
use crate::client::{BodyEnd, Outcome};
use crate::reference::Answers;
use crate::workload::Route;
use crate::world::Run;
use lockstep_server::automaton::{
    check_chat_stream, check_completion_stream, check_message_stream,
};

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    for exchange in &run.exchanges {
        let Outcome::Response {
            status: 200,
            body,
            end: BodyEnd::Complete,
            ..
        } = &exchange.outcome
        else {
            continue;
        };
        let wish = &exchange.wish;
        if !wish.is_stream() {
            continue;
        }
        let n = wish.body["n"].as_u64().unwrap_or(1) as usize;
        let prompts = wish.body["prompt"].as_array().map_or(1, Vec::len);
        let result = match wish.route {
            Route::Chat => check_chat_stream(body, n),
            Route::Completions => check_completion_stream(body, n * prompts),
            Route::Messages => check_message_stream(body),
        };
        bench.check(Some(&wish.id), result);
    }
}
