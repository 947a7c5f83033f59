//! What a request must get: the answer of a fresh server that runs one request at a time, plainly, with nothing planted
//! and nothing kept. It must never share a cache, a batch or a draft with the run that it is held against.

use crate::client::{BodyEnd, Outcome, over};
use crate::life::Book;
use crate::options::Options;
use crate::workload::{Manner, Route, Wish};
use crate::world::{plain, server};
use lockstep_server::Server;
use lockstep_server::said::Answer;
use lockstep_step::planted;
use madsim::runtime::Runtime;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

/// Answers by route and body.
pub type Answers = BTreeMap<(Route, String), Result<Answer, String>>;

/// The key of a request's answer.
pub fn key(wish: &Wish) -> (Route, String) {
    (wish.route, plainly(wish).body.to_string())
}

/// The answers to all of them, one after another. The server keeps nothing between two of them but its free blocks.
pub fn answers<'a>(options: &Options, wishes: impl Iterator<Item = &'a Wish>) -> Answers {
    let mut asked = BTreeMap::new();
    for wish in wishes {
        asked.entry(key(wish)).or_insert_with(|| plainly(wish));
    }
    let options = plain(options);
    let before = planted::set(None);
    let thread = std::thread::spawn(move || {
        let runtime = Runtime::with_seed_and_config(options.seed, madsim::Config::default());
        runtime.block_on(async move {
            let mut answers = Answers::new();
            let server = server(&options, &Book::default(), BTreeMap::new());
            for (key, wish) in asked {
                answers.insert(key, answer(&server, &wish).await);
            }
            // Its loop ends once nobody can ask it anything more.
            drop(server);
            sleep(Duration::from_millis(10)).await;
            answers
        })
    });
    let answers = thread.join();
    planted::set(before);
    match answers {
        Ok(answers) => answers,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The request as it is asked of the plain server: as a stream, which tells of each choice by itself.
fn plainly(wish: &Wish) -> Wish {
    let mut plain = wish.clone();
    plain.manner = Manner::Whole;
    plain.body["stream"] = json!(true);
    if let Some(body) = plain.body.as_object_mut() {
        body.remove("speculate");
        body.remove("cache_salt");
        if wish.route != Route::Messages {
            body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
    }
    plain
}

async fn answer(server: &Server, wish: &Wish) -> Result<Answer, String> {
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(lockstep_server::serve_connection(far, server.clone()));
    let outcome = over(near, wish).await;
    let Outcome::Response {
        status,
        body,
        end: BodyEnd::Complete,
        ..
    } = outcome
    else {
        return Err(format!(
            "a plain run of {} ended with {outcome:?}",
            wish.body
        ));
    };
    match status {
        200 => Answer::stream(wish.route, &body),
        _ => Answer::whole(wish.route, status, &body),
    }
}
