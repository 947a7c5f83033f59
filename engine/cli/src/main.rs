//! The `lockstep` command: one module per subcommand, and what they share. This is the only place that
//! knows which backends exist, and that reads a terminal, a signal or the machine's clock for its own sake.
//! It must never decide what an answer is.

mod answer;
mod backend;
mod battery;
mod bench;
mod bisect;
mod captures;
mod chat;
mod check_logits;
mod client;
mod compare;
mod cuda;
mod dialogue;
mod exit;
mod flags;
mod form;
mod generate;
mod hub;
mod inspect;
mod interrupt;
mod law;
mod masks;
mod pack;
mod parse;
mod pins;
mod pipe;
#[cfg(planted)]
mod plant;
mod record;
mod replay;
mod selftest;
mod serve;
mod session;
mod statistics;
mod tabulate;
mod terminal;
mod tools;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  lockstep chat                                 talk to the embedded model
  lockstep serve                                OpenAI and Anthropic APIs on http://127.0.0.1:8000
  lockstep serve -m ./SmolLM2-135M-Instruct     the same for a Hugging Face directory
  lockstep generate --chat 'What is 3 plus 4?' --seed 1 --json --digests
  lockstep bench                                speed beside the machine's own limits
  lockstep law                                  whether anything changes a byte that may not

Exit codes: 0 done, 1 a check failed, 2 wrong command line, 3 an input can't be used,
4 the engine or the server failed, 5 it could not be judged, 6 the check is unstable,
130 interrupted.";

/// Serves language models whose every answer can be computed again, anywhere, to the same bit.
#[derive(Parser)]
#[command(name = "lockstep", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// The arguments of a command are read once; their size does not matter.
#[allow(clippy::large_enum_variant, reason = "one value per process")]
#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Chat(chat::ChatArgs),
    Generate(generate::GenerateArgs),
    Inspect(inspect::InspectArgs),
    Pack(pack::PackArgs),
    Bench(bench::BenchArgs),
    CheckLogits(check_logits::CheckLogitsArgs),
    Parse(parse::ParseArgs),
    Masks(masks::MasksArgs),
    Law(law::LawArgs),
    Replay(replay::ReplayArgs),
    Compare(compare::CompareArgs),
    Tabulate(tabulate::TabulateArgs),
    Pins(pins::PinsArgs),
    Battery(battery::BatteryArgs),
    Bisect(bisect::BisectArgs),
    Selftest(selftest::SelftestArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    #[cfg(planted)]
    if let Err(failure) = plant::plant() {
        return exit::end(Err(failure));
    }
    if !matches!(command, Command::Serve(_)) {
        pipe::end_with_the_reader();
    }
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::CheckLogits(args) => check_logits::run(&args),
        Command::Parse(args) => parse::run(&args),
        Command::Masks(args) => masks::run(&args),
        Command::Law(args) => law::run(&args),
        Command::Replay(args) => replay::run(args),
        Command::Compare(args) => compare::run(&args),
        Command::Tabulate(args) => tabulate::run(&args),
        Command::Pins(args) => pins::run(&args),
        Command::Battery(args) => battery::run(&args),
        Command::Bisect(args) => bisect::run(&args),
        Command::Selftest(args) => selftest::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.clone().render_help().to_string();
            assert!(help.contains("Examples:"), "{}", command.get_name());
        }
    }
}
