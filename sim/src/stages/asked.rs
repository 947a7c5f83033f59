//! What the engine should have been asked: each client's request, read again by a server that runs nothing.

use crate::life::Submit;
use crate::workload::{Route, Wish};
use crate::world::{Run, model, server_config};
use lockstep_core::Request;
use lockstep_server::{ReadRequest, RequestReader};
use lockstep_step::Matcher;
use std::collections::BTreeMap;

/// The requests of a run, to be read as often as is wanted.
pub struct Asked<'a> {
    reader: RequestReader,
    wishes: BTreeMap<&'a str, &'a Wish>,
}

impl<'a> Asked<'a> {
    /// All requests that clients of a run have sent.
    pub fn of(run: &'a Run) -> Asked<'a> {
        let wishes = run.exchanges.iter().map(|exchange| &exchange.wish);
        Asked {
            reader: RequestReader::new(server_config(&run.options), model(&run.options)),
            wishes: wishes.map(|wish| (wish.id.as_str(), wish)).collect(),
        }
    }

    /// A matcher for each request that is held, at the start of its answer.
    pub fn matchers(&self) -> impl Iterator<Item = Box<dyn Matcher>> {
        self.wishes.values().filter_map(|wish| {
            let read = self.read(wish)?;
            self.reader.choice(&read, 0).ok()?.matcher
        })
    }

    fn read(&self, wish: &Wish) -> Option<ReadRequest> {
        let read = match wish.route {
            Route::Chat => self.reader.chat(&wish.body),
            Route::Completions => self.reader.completion(&wish.body),
            Route::Messages => self.reader.message(&wish.body),
        };
        read.ok()
    }

    /// What a submit should have been, its matcher at the start of the answer. None if nobody knows.
    pub fn request(&self, submit: &Submit) -> Option<Request> {
        let read = self.read(self.wishes.get(submit.id.as_str())?)?;
        self.reader.choice(&read, submit.choice).ok()
    }
}
