//! The `lockstep` command.
use std::process::ExitCode;

use clap::Parser;

mod parse;

/// An LLM serving engine whose every answer can be computed again, to the same bit
#[derive(Parser)]
#[command(name = "lockstep", version)]
enum Command {
    Parse(parse::ParseArgs),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Parse(args) => parse::run(&args),
    }
}
