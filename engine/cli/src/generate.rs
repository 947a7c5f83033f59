//! `lockstep generate`: one prompt in, one answer out. With `--json` it prints all that is needed to check
//! that another process, machine or setting gave the same bytes. Standard output holds the answer alone.

use crate::{
    answer::{Answer, finish_word},
    dialogue::{self, Dialogue, DialogueArgs, LimitArgs},
    exit::Failure,
    flags::{EngineArgs, MachineArgs, ModelArgs, SamplingArgs},
    form::{Form, FormArgs},
    session::Session,
    terminal::Paint,
};
use lockstep_core::{Event, EventKind, Finish, Finished, Request};
use lockstep_package::Package;
use lockstep_step::SamplingParams;
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, IsTerminal, Read, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

const EXAMPLES: &str = "\
Examples:
  lockstep generate --chat 'What is the capital of Peru?'
  echo 'Once upon a time' | lockstep generate -m ./SmolLM2-135M --max-tokens 40
  lockstep generate --chat 'Set an alarm to 7:00' --tools tools.json --json
  lockstep generate --chat 'Which city?' --choice Lima --choice Quito
  lockstep generate --chat 'Tell me about Peru' --json-schema country.json
  lockstep generate 'The' --seed 7 --temperature 1 --json --digests";

/// Writes the answer to one prompt.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GenerateArgs {
    /// The prompt; without it, it is read from --file or from standard input.
    prompt: Option<String>,
    /// Reads the prompt from a file.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "prompt")]
    file: Option<PathBuf>,
    /// Puts the prompt into the model's chat template, as a user's message.
    #[arg(long)]
    chat: bool,
    /// Prints one JSON object: text, tokens, seed, finish, usage.
    #[arg(long)]
    json: bool,
    /// Adds to it the digest of the logits that each token was drawn from.
    #[arg(long, requires = "json")]
    digests: bool,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten, next_help_heading = "Form of the answer")]
    form: FormArgs,
    #[command(flatten, next_help_heading = "Conversation (with --chat)")]
    dialogue: DialogueArgs,
    #[command(flatten, next_help_heading = "Sampling")]
    sampling: SamplingArgs,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
    #[command(flatten, next_help_heading = "Machine")]
    machine: MachineArgs,
    #[command(flatten, next_help_heading = "Engine")]
    engine: EngineArgs,
}

/// Runs the command.
pub fn run(args: &GenerateArgs) -> ExitCode {
    crate::exit::end(generate(args))
}

fn generate(args: &GenerateArgs) -> Result<(), Failure> {
    let asks_for_chat = args.dialogue.system.is_some() || args.dialogue.tools.is_some();
    if asks_for_chat && !args.chat {
        return Err(Failure::usage(
            "--system and --tools need a template",
            "add --chat",
        ));
    }
    let text = prompt_text(args)?;
    let mut session = Session::open(&args.model, &args.machine, &args.engine)?;
    let package = &session.package;
    let sampling = dialogue::sampling(package, &args.sampling)?;
    let seed = sampling.seed;
    let request = request(args, package, &text, sampling)?;
    let prompt_ids: Vec<u32> = request.prompt.iter().map(|token| token.0).collect();
    session.submit(request)?;
    let mut answer = Answer::default();
    let mut printer = Printer {
        quiet: args.json,
        paint: Paint::stdout(),
        open: false,
    };
    session.run(|_, event| {
        printer.show(event)?;
        answer.push(event);
        Ok(())
    })?;
    printer.end()?;
    let Some(finished) = answer.finished.clone() else {
        return Err(Failure::failed("the engine stopped without an end"));
    };
    if args.json {
        let mut report = report(&answer, &finished, &prompt_ids, seed);
        report["model"] = json!(session.package.name);
        report["weights"] = json!(args.machine.weights.name());
        if args.digests {
            let digests = answer
                .digests
                .iter()
                .map(|digest| json!(format!("{digest:016x}")));
            report["digests"] = digests.collect();
        }
        println!("{report:#}");
    }
    match finished.finish {
        Finish::Error(error) => Err(Failure::input(
            format!("the answer ended with {}: {error}", error.kind()),
            "what was printed before is all there is",
        )),
        Finish::Aborted => Err(Failure::failed("the answer was aborted")),
        Finish::EndToken(_) | Finish::StopString(_) | Finish::Length | Finish::ToolCalls => Ok(()),
    }
}

fn request(
    args: &GenerateArgs,
    package: &Arc<Package>,
    text: &str,
    sampling: SamplingParams,
) -> Result<Request, Failure> {
    if args.chat {
        let mut dialogue = Dialogue::new(&args.dialogue)?;
        dialogue.user(text);
        let prompt = dialogue.encode(package)?;
        let form = Form::new(&args.form, package, Some(&dialogue))?;
        let matcher = form.map(|form| form.of_chat(&dialogue, &args.limits));
        return Ok(Request {
            matcher: matcher.transpose()?.flatten(),
            ..dialogue.request(package, &prompt, sampling, &args.limits)
        });
    }
    let prompt = dialogue::encode_plain(package, text)?;
    let form = Form::new(&args.form, package, None)?;
    let matcher = form.map(|form| form.of_prompt(&prompt, &args.limits));
    Ok(Request {
        matcher: matcher.transpose()?.flatten(),
        ..dialogue::plain_request(package, prompt, sampling, &args.limits)
    })
}

fn prompt_text(args: &GenerateArgs) -> Result<String, Failure> {
    if let Some(prompt) = &args.prompt {
        return Ok(prompt.clone());
    }
    let bytes = if let Some(path) = &args.file {
        fs::read(path)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display()), ""))?
    } else if io::stdin().is_terminal() {
        return Err(Failure::usage(
            "there is no prompt",
            "give one, or --file, or pipe it in",
        ));
    } else {
        let mut bytes = Vec::new();
        let read = io::stdin().read_to_end(&mut bytes);
        read.map_err(|error| Failure::input(format!("standard input: {error}"), ""))?;
        bytes
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::input(
            format!("the prompt is not UTF-8 at byte {at}"),
            "convert it first",
        )
    })?;
    // A shell's newline at the end is not part of what was meant.
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

fn report(answer: &Answer, finished: &Finished, prompt_ids: &[u32], seed: u64) -> Value {
    let calls = answer.calls.iter().map(|(name, arguments)| {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
        json!({"name": name, "arguments": arguments})
    });
    let mut finish = json!({"reason": finish_word(&finished.finish)});
    match &finished.finish {
        Finish::EndToken(token) => finish["token"] = json!(token.0),
        Finish::StopString(text) => finish["string"] = json!(text),
        Finish::Error(error) => {
            finish["kind"] = json!(error.kind());
            finish["message"] = json!(error.to_string());
        }
        Finish::Length | Finish::ToolCalls | Finish::Aborted => {}
    }
    let usage = finished.usage;
    json!({
        "content": answer.content,
        "reasoning": answer.reasoning,
        "tool_calls": calls.collect::<Vec<_>>(),
        "finish": finish,
        "seed": seed,
        "prompt_token_ids": prompt_ids,
        "token_ids": answer.token_ids,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
    })
}

/// Writes an answer as it comes: reasoning and calls to standard error when standard output is piped, so
/// that what is piped is the answer alone.
struct Printer {
    quiet: bool,
    paint: Paint,
    open: bool,
}

impl Printer {
    fn show(&mut self, event: &Event) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        match &event.kind {
            EventKind::Content(text) => self.out(text),
            EventKind::Reasoning(text) => self.err(&self.paint.dim(text)),
            EventKind::CallBegin { name, .. } => self.out(&format!("{name}(")),
            EventKind::CallArguments { fragment, .. } => self.out(fragment),
            EventKind::CallEnd { .. } => self.out(")\n"),
            EventKind::Token { .. }
            | EventKind::Scheduled
            | EventKind::DroppedSpecial { .. }
            | EventKind::Preempted
            | EventKind::Finished(_) => Ok(()),
        }
    }

    fn out(&mut self, text: &str) -> Result<(), Failure> {
        self.open = !text.ends_with('\n');
        let mut stdout = io::stdout().lock();
        written(
            stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush()),
        )
    }

    fn err(&self, text: &str) -> Result<(), Failure> {
        written(io::stderr().write_all(text.as_bytes()))
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.open { self.out("\n") } else { Ok(()) }
    }
}

fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| Failure::failed(format!("cannot write: {error}")))
}
