//! `lockstep chat`: a conversation in the terminal, reasoning dimmed and tool calls as such. Piped, each
//! line is one message of the user. It must never send anything anywhere: the model runs in this process.

use crate::{
    answer::Answer,
    dialogue::{self, Dialogue, DialogueArgs, LimitArgs},
    exit::{Exit, Failure},
    flags::{EngineArgs, MachineArgs, ModelArgs, SamplingArgs},
    form::{Form, FormArgs},
    interrupt::Interrupt,
    session::Session,
    terminal::Paint,
};
use lockstep_core::{Event, EventKind, Finish, Request};
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
};

const EXAMPLES: &str = "\
Examples:
  lockstep chat
  lockstep chat --tools tools.json --seed 7
  lockstep chat -m ./SmolLM2-135M-Instruct --system 'Answer in one sentence.'
  lockstep chat --regex '[A-Z][a-z ]+[.]'
  printf 'Hello.\\nWhat is 3 plus 4?\\n' | lockstep chat

In a conversation:
  /reset        forgets it          /tool TEXT    answers the model's tool call
  /quit         ends                /help         says this
  ctrl-c        stops an answer, or ends";

const HELP: &str = "\
/reset        forgets the conversation
/tool TEXT    gives TEXT as the result of the model's tool call
/quit         ends; so do ctrl-c and ctrl-d
ctrl-c        stops an answer that is being written";

/// Talks to a model in the terminal.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ChatArgs {
    #[command(flatten)]
    dialogue: DialogueArgs,
    /// Leaves reasoning out.
    #[arg(long)]
    hide_reasoning: bool,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten, next_help_heading = "Form of the answers")]
    form: FormArgs,
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
pub fn run(args: &ChatArgs) -> ExitCode {
    crate::exit::end(chat(args))
}

/// What a line of the user asks for.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Message(&'a str),
    ToolResult(&'a str),
    Reset,
    Help,
    Quit,
    Nothing,
    Unknown(&'a str),
}

impl Line<'_> {
    fn parse(line: &str) -> Line<'_> {
        let line = line.trim_end_matches(['\n', '\r']);
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "/reset" => Line::Reset,
            "/help" | "/?" => Line::Help,
            "/quit" | "/exit" => Line::Quit,
            "/tool" => Line::ToolResult(rest.trim()),
            _ if line.trim().is_empty() => Line::Nothing,
            _ if word.starts_with('/') && word.chars().skip(1).all(char::is_alphabetic) => {
                Line::Unknown(word)
            }
            _ => Line::Message(line),
        }
    }
}

fn chat(args: &ChatArgs) -> Result<(), Failure> {
    let session = Session::open(&args.model, &args.machine, &args.engine)?;
    let dialogue = Dialogue::new(&args.dialogue)?;
    let interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
    let screen = Screen {
        paint: Paint::stdout(),
        hide_reasoning: args.hide_reasoning,
        channel: Channel::Start,
    };
    if interactive {
        let name = screen.paint.bold(&session.package.name);
        eprintln!("Talking to {name}. /help lists commands, ctrl-d ends.");
    }
    let mut conversation = Conversation {
        args,
        form: Form::new(&args.form, &session.package, Some(&dialogue))?,
        beginning: dialogue.messages.clone(),
        dialogue,
        session,
        screen,
        interrupt: Interrupt::listen()?,
        open_calls: Vec::new(),
    };
    let mut lines = io::stdin().lock();
    loop {
        if interactive {
            conversation
                .screen
                .write(&conversation.screen.paint.cyan("\n› "))?;
        }
        let mut line = String::new();
        let num_read = lines.read_line(&mut line).map_err(|error| {
            Failure::input(format!("standard input: {error}"), "send UTF-8 text")
        })?;
        if num_read == 0 {
            return Ok(());
        }
        match conversation.take(&Line::parse(&line)) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // Somebody who sits there can say something else, or /reset.
            Err(failure) if interactive && failure.exit == Exit::Input => failure.report(),
            Err(failure) => return Err(failure),
        }
        if interactive && !conversation.open_calls.is_empty() {
            eprintln!(
                "{}",
                conversation
                    .screen
                    .paint
                    .dim("/tool TEXT gives the tool's result")
            );
        }
    }
}

/// A conversation with everything it needs.
struct Conversation<'a> {
    args: &'a ChatArgs,
    /// The messages that it began with.
    beginning: Vec<Value>,
    dialogue: Dialogue,
    /// What answers are held to, if they are.
    form: Option<Form>,
    session: Session,
    screen: Screen,
    interrupt: Interrupt,
    /// Ids of the model's calls that have no result yet.
    open_calls: Vec<String>,
}

impl Conversation<'_> {
    /// Does what a line asks for. False to end.
    fn take(&mut self, line: &Line<'_>) -> Result<bool, Failure> {
        match line {
            Line::Nothing => {}
            Line::Quit => return Ok(false),
            Line::Help => eprintln!("{HELP}"),
            Line::Unknown(word) => eprintln!("{word} is no command; /help lists them"),
            Line::Reset => {
                self.dialogue.messages.clone_from(&self.beginning);
                self.open_calls.clear();
                eprintln!("{}", Paint::stderr().dim("forgotten"));
            }
            Line::ToolResult(_) if self.open_calls.is_empty() => {
                eprintln!("no tool call is waiting for a result");
            }
            Line::ToolResult(text) => {
                let id = self.open_calls.remove(0);
                let result = json!({"role": "tool", "tool_call_id": id, "content": text});
                self.dialogue.messages.push(result);
                if self.open_calls.is_empty() {
                    self.answer()?;
                }
            }
            Line::Message(text) => {
                let num_before = self.dialogue.messages.len();
                self.dialogue.user(text);
                // A message that can't be answered was never said.
                self.answer()
                    .inspect_err(|_| self.dialogue.messages.truncate(num_before))?;
            }
        }
        Ok(true)
    }

    /// Lets the model answer.
    fn answer(&mut self) -> Result<(), Failure> {
        let package = &self.session.package;
        let prompt = self.dialogue.encode(package)?;
        let sampling = dialogue::sampling(package, &self.args.sampling)?;
        let limits = &self.args.limits;
        let form = self.form.as_ref();
        let matcher = form.map(|form| form.of_chat(&self.dialogue, limits));
        let request = Request {
            matcher: matcher.transpose()?.flatten(),
            ..self.dialogue.request(package, &prompt, sampling, limits)
        };
        let seq = self.session.submit(request)?;
        let mut answer = Answer::default();
        let (screen, interrupt) = (&mut self.screen, &self.interrupt);
        screen.channel = Channel::Start;
        interrupt.begin();
        let result = self.session.run(|session, event| {
            screen.show(event)?;
            answer.push(event);
            if interrupt.is_asked() {
                session.abort(seq);
            }
            Ok(())
        });
        interrupt.end();
        result?;
        screen.end(&answer)?;
        let finish = answer.finished.as_ref().map(|finished| &finished.finish);
        self.open_calls = match finish {
            Some(Finish::ToolCalls) => (0..answer.calls.len()).map(Answer::call_id).collect(),
            _ => Vec::new(),
        };
        self.dialogue.messages.push(answer.message());
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Channel {
    Start,
    Reasoning,
    Content,
    Call,
}

/// Writes an answer as it comes.
struct Screen {
    paint: Paint,
    hide_reasoning: bool,
    channel: Channel,
}

impl Screen {
    fn write(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let result = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
        result.map_err(|error| Failure {
            exit: Exit::Failed,
            what: format!("cannot write: {error}"),
            next: String::new(),
        })
    }

    /// Begins a line of its own for another kind of text.
    fn switch(&mut self, channel: Channel) -> Result<(), Failure> {
        let before = self.channel;
        self.channel = channel;
        if before == Channel::Start || (before == channel && channel != Channel::Call) {
            return Ok(());
        }
        self.write("\n")
    }

    fn show(&mut self, event: &Event) -> Result<(), Failure> {
        match &event.kind {
            EventKind::Reasoning(text) if !self.hide_reasoning => {
                self.switch(Channel::Reasoning)?;
                self.write(&self.paint.dim(text))
            }
            EventKind::Content(text) => {
                self.switch(Channel::Content)?;
                self.write(text)
            }
            EventKind::CallBegin { name, .. } => {
                self.switch(Channel::Call)?;
                self.write(&format!(
                    "{} {}(",
                    self.paint.yellow("⚙"),
                    self.paint.cyan(name)
                ))
            }
            EventKind::CallArguments { fragment, .. } => self.write(fragment),
            EventKind::CallEnd { .. } => self.write(")"),
            EventKind::Reasoning(_)
            | EventKind::Token { .. }
            | EventKind::Scheduled
            | EventKind::DroppedSpecial { .. }
            | EventKind::Preempted
            | EventKind::Finished(_) => Ok(()),
        }
    }

    fn end(&mut self, answer: &Answer) -> Result<(), Failure> {
        self.write("\n")?;
        let Some(finished) = &answer.finished else {
            return Ok(());
        };
        let note = match &finished.finish {
            Finish::Length => "the answer reached its token limit".to_owned(),
            Finish::Aborted => "stopped".to_owned(),
            Finish::Error(error) => format!("{}: {error}", error.kind()),
            Finish::EndToken(_) | Finish::StopString(_) | Finish::ToolCalls => return Ok(()),
        };
        let paint = Paint::stderr();
        eprintln!("{}", paint.red(&format!("[{note}]")));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn lines() {
        assert_eq!(Line::parse("Hello.\n"), Line::Message("Hello."));
        assert_eq!(Line::parse("  \n"), Line::Nothing);
        assert_eq!(Line::parse("/reset\n"), Line::Reset);
        assert_eq!(
            Line::parse("/tool 21 degrees\r\n"),
            Line::ToolResult("21 degrees")
        );
        assert_eq!(Line::parse("/rset\n"), Line::Unknown("/rset"));
        // A path is something to talk about, not a command.
        assert_eq!(
            Line::parse("/etc/hosts is a file"),
            Line::Message("/etc/hosts is a file")
        );
    }
}
