//! Every stream that came whole is a word of its API's automaton, and none is kept back until it is whole.

use super::Bench;
use super::liveness::{is_prompt, notice};
use crate::client::{BodyEnd, Outcome};
use crate::reference::Answers;
use crate::workload::Route;
use crate::world::Run;
use lockstep_server::automaton::{
    check_chat_stream, check_completion_stream, check_message_stream,
};

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    for exchange in &run.exchanges {
        let Some(body) = exchange.whole() else {
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
    if is_prompt(run) {
        kept_back(run, bench);
    }
}

/// Whoever left in the middle had been told something, if the engine had said something by then.
fn kept_back(run: &Run, bench: &mut Bench<'_>) {
    let bound = notice(run);
    for exchange in &run.exchanges {
        let told = match &exchange.outcome {
            Outcome::Left => 0,
            Outcome::Response {
                end: BodyEnd::Left,
                body,
                ..
            } => body.len(),
            _ => continue,
        };
        let wish = &exchange.wish;
        let lives = run
            .lives
            .iter()
            .map(|life| life.open())
            .filter(|_| wish.is_stream());
        for life in lives {
            let own = life
                .submits
                .iter()
                .filter(|(_, submit)| submit.id == wish.id);
            let said = own.filter_map(|(seq, _)| life.firsts.get(seq)).min();
            if let Some(said) = said.filter(|said| **said + bound < exchange.over) {
                let since = exchange.over - *said;
                let what = format!("nothing came of it {since:?} after the first piece was there");
                bench.check(Some(&wish.id), if told > 0 { Ok(()) } else { Err(what) });
            }
        }
    }
}
