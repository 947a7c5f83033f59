//! `lockstep parse`: reads what a model wrote, one output from standard input or a file of recorded
//! ones. It must never end well where something could not be read, or where nothing was.

mod cases;
mod output;

use crate::exit::Failure;
use lockstep_tags::{Ended, TagFormat, UnknownFormat};
use std::{path::PathBuf, process::ExitCode};

/// Read raw model output as reasoning, content and tool calls, or check recorded outputs
#[derive(clap::Args, Debug)]
#[command(after_help = "\
With --format alone the output of a model is read from standard input, special tokens spelled out,
and what it says is printed. Offer tools with --tools: without any, call tags are text. The exit
code is 1 if a call in it cannot be read.

With --cases each case of a file is read in one piece, cut in two at every character, one character
at a time, in its own chunks, and at every prefix with the token limit as its end; under whole and
eager delivery. The last line is `N passed, M failed`; the exit code is 0 only if M is 0 and N is
not.

Examples:
  lockstep parse --format glm --tools tools.json < output.txt
  echo 'Hm.</think>Hi' | lockstep parse --format qwen_xml --prompt-tail '<think>'
  lockstep parse --format harmony --tools tools.json --ended length --json < output.txt | jq .error
  lockstep parse --cases tests/fixtures/cases/tool_calls.jsonl
  lockstep parse --cases my_cases.jsonl --format glm --json | jq .failures")]
pub struct ParseArgs {
    /// File of cases, one JSON object per line
    #[arg(long, value_name = "FILE", required_unless_present = "format",
          conflicts_with_all = ["tools", "prompt_tail", "ended"])]
    pub cases: Option<PathBuf>,

    /// How the output is written: none, glm, qwen_xml, hermes_json, deepseek_v3, deepseek_v31,
    /// deepseek_dsml, kimi_k2, minimax_m2, harmony. With --cases, only the cases of this format
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,

    /// The tools that were offered: a JSON array as in the OpenAI API
    #[arg(long, value_name = "FILE.json")]
    pub tools: Option<PathBuf>,

    /// The end of the prompt; one that ends in <think> has left thinking open
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prompt_tail: String,

    /// How the output ended: the model stopped by itself, or the token limit cut it off
    #[arg(long, value_enum, default_value_t = EndedKind::Eos)]
    pub ended: EndedKind,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// How an output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EndedKind {
    /// The model stopped by itself
    Eos,
    /// The token limit cut it off
    Length,
}

impl From<EndedKind> for Ended {
    fn from(kind: EndedKind) -> Ended {
        match kind {
            EndedKind::Eos => Ended::Eos,
            EndedKind::Length => Ended::Length,
        }
    }
}

/// What a run came to.
struct Verdict {
    /// What is printed.
    text: String,
    is_good: bool,
}

/// Runs the command. Results go to standard output, what keeps it from running to standard error.
pub fn run(args: &ParseArgs) -> ExitCode {
    let verdict = match &args.cases {
        Some(path) => cases::run(path, args),
        None => output::run(args),
    };
    match verdict {
        Ok(Verdict { text, is_good }) => {
            println!("{text}");
            ExitCode::from(u8::from(!is_good))
        }
        Err(failure) => crate::exit::end(Err(failure)),
    }
}

/// The format of this name.
fn format(name: &str) -> Result<TagFormat, Failure> {
    name.parse()
        .map_err(|error: UnknownFormat| Failure::input(error, "give one of these with --format"))
}
