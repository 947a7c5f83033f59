//! The table of targets: closed, so that nothing is fuzzed that no list names.

mod agreement;
mod asked;
mod body;
mod engine;
mod flaky;
mod folder;
mod jinja;
mod kernels;
mod masks;
mod package;
mod requests;
mod sampler;
mod streams;
mod tags;
mod template;

use std::cell::Cell;

/// One law about bytes.
pub struct Target {
    /// Its name on the command line, and of its folders of inputs.
    pub name: &'static str,
    /// What it asserts, in a sentence.
    pub law: &'static str,
    /// Asserts it for one input; a panic is a failure.
    pub check: fn(&[u8]),
    /// Texts that matter in its inputs.
    pub dictionary: &'static [&'static str],
    /// How often a smoke run executes it on inputs that it makes up.
    pub smoke_runs: u32,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "tags",
        law: "no cut and no delivery changes what a tag parser reads, in any format",
        check: tags::tags,
        dictionary: tags::DICTIONARY,
        smoke_runs: 60_000,
    },
    Target {
        name: "agreement",
        law: "what a grammar lets through a parser reads as calls that fit their schemas",
        check: agreement::agreement,
        dictionary: asked::DICTIONARY,
        smoke_runs: 1200,
    },
    Target {
        name: "masks",
        law: "a mask is what trying every token finds, and taking tokens back leaves no trace",
        check: masks::masks,
        dictionary: masks::DICTIONARY,
        smoke_runs: 1200,
    },
    Target {
        name: "package",
        law: "a package of any files opens, or is refused by an error that names the file",
        check: package::package,
        dictionary: package::DICTIONARY,
        smoke_runs: 6000,
    },
    Target {
        name: "template",
        law: "a chat template of any text writes a bounded prompt, or ends in an error",
        check: template::template,
        dictionary: template::DICTIONARY,
        smoke_runs: 5000,
    },
    Target {
        name: "engine",
        law: "whatever is submitted, aborted, overlapped or fails: each gets what it gets alone",
        check: engine::engine,
        dictionary: &[],
        smoke_runs: 2500,
    },
    Target {
        name: "streams",
        law: "whatever an engine says, the streams of all APIs are words of their automata",
        check: streams::streams,
        dictionary: &[],
        smoke_runs: 3000,
    },
    Target {
        name: "requests",
        law: "any bytes to any route get an answer, and a refusal says what was wrong",
        check: requests::requests,
        dictionary: requests::DICTIONARY,
        smoke_runs: 30_000,
    },
    Target {
        name: "kernels",
        law: "the kernels of every instruction set give the bits of their scalar definition",
        check: kernels::kernels,
        dictionary: &[],
        smoke_runs: 10_000,
    },
    Target {
        name: "sampler",
        law: "every vector width draws what the scalar definition draws",
        check: sampler::sampler,
        dictionary: &[],
        smoke_runs: 8000,
    },
];

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

thread_local! {
    static HELD: Cell<u64> = const { Cell::new(0) };
}

/// Notes that the law was held against something: an input that is no case at all says nothing.
fn note_held() {
    HELD.with(|held| held.set(held.get() + 1));
}

/// How often, on this thread, a law was held against something.
pub fn num_held() -> u64 {
    HELD.with(Cell::get)
}
