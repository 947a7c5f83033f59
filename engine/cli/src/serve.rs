//! `lockstep serve`: the HTTP server on a model. Flags become the server's settings here, signals become
//! its drain; everything else is `lockstep-server`'s. It must never touch a request.

use crate::{
    exit::{Exit, Failure},
    flags::{EngineArgs, MachineArgs, ModelArgs},
    record::{About, RecordArgs},
    session::Served,
    terminal::Paint,
};
use clap::ValueEnum;
use lockstep_core::EngineConfig;
use lockstep_server::{
    DeliveryPolicy, Limits, SamplingPolicy, Server, ServerConfig, ServerHandle, ToolGrammar,
};
use lockstep_step::Backend;
use std::{
    fs,
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

const EXAMPLES: &str = "\
Examples:
  lockstep serve
  lockstep serve -m models/smollm2-135m --port 9000
  lockstep serve --model HuggingFaceTB/SmolLM2-135M-Instruct --max-model-len 4096
  lockstep serve --host 0.0.0.0 --api-key-file /run/secrets/keys

OpenAI clients take http://HOST:PORT/v1 as their base URL, Anthropic's take http://HOST:PORT.
SIGTERM and ctrl-c let running answers finish; a second one ends at once.";

/// Serves a model over the OpenAI and Anthropic APIs.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Address to listen on; others than loopback need an API key or --allow-open.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 takes a free one, which is printed.
    #[arg(long, short = 'p', value_name = "PORT", default_value_t = 8000)]
    port: u16,
    /// A key that clients must show.
    #[arg(
        long,
        value_name = "KEY",
        env = "LOCKSTEP_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<String>,
    /// A file of such keys, one a line.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Serves other machines without a key.
    #[arg(long)]
    allow_open: bool,
    /// Name of the model in the API; more than one are aliases [default: the package's].
    #[arg(long, value_name = "NAME")]
    served_model_name: Vec<String>,
    /// When a tool call is delivered: as it is written, or once it has parsed.
    #[arg(long, value_enum, default_value_t = DeliveryKind::Auto)]
    delivery: DeliveryKind,
    /// When tool calls are held to a grammar, so that none can be malformed.
    #[arg(long, value_enum, default_value_t = ToolGrammarKind::Asked)]
    tool_grammar: ToolGrammarKind,
    /// What happens to sampling values outside the package's ranges.
    #[arg(long, value_enum, default_value_t = RangesKind::Clamp)]
    sampling_ranges: RangesKind,
    /// The most tokens of an answer where the request doesn't say [default: what fits].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    default_max_tokens: Option<u32>,
    /// Sequences that may wait; beyond, clients get 429.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_waiting_requests: Option<u32>,
    /// Tokens of waiting sequences, prompts and answers; beyond, clients get 429.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_waiting_tokens: Option<u64>,
    /// The largest body of a request.
    #[arg(long, value_name = "MIB", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_body_mib: u32,
    /// How long running answers may go on after SIGTERM.
    #[arg(long, value_name = "S", default_value_t = 30)]
    grace_seconds: u64,
    /// How the log is written to standard error; RUST_LOG filters it.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
    #[command(flatten, next_help_heading = "Machine")]
    machine: MachineArgs,
    #[command(flatten, next_help_heading = "Engine")]
    engine: EngineArgs,
    #[command(flatten, next_help_heading = "Captures")]
    record: RecordArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeliveryKind {
    /// Eager where a grammar holds the call, whole elsewhere.
    Auto,
    /// As it is written: earlier, but a call that breaks off was partly seen.
    Eager,
    /// Once it has parsed.
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ToolGrammarKind {
    /// Where a request asks for it: strict tools, a required or named tool, a single call.
    Asked,
    /// Wherever tools may be called.
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RangesKind {
    /// The nearest value inside is used, and the answer says so.
    Clamp,
    /// The request is refused.
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> ExitCode {
    crate::exit::end(serve(args))
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    start_log(args.log_format);
    let api_keys = api_keys(args)?;
    let adjust = |config: &mut EngineConfig| {
        if let Some(max) = args.max_waiting_requests {
            config.max_waiting_requests = max;
        }
        if let Some(max) = args.max_waiting_tokens {
            config.max_waiting_tokens = max;
        }
    };
    let Served {
        package,
        engine,
        backend,
        about,
        config: engine_config,
    } = Served::open(&args.model, &args.machine, &args.engine, adjust)?;
    let config = server_config(args, &package.name, api_keys);
    let recording = args.record.begin(&About {
        package: &package,
        limits: backend.limits(),
        backend: backend.describe(),
        engine: &engine_config,
        machine: &args.machine,
    })?;
    if let Some(recording) = &recording {
        tracing::info!("captures go to {}", recording.folder().display());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let result = runtime.block_on(async {
        let address = format!("{}:{}", bracketed(&args.host), args.port);
        let listener =
            lockstep_server::bind(&address, !config.api_keys.is_empty(), args.allow_open)
                .await
                .map_err(|error| Failure::usage(error, "choose with --host, --port, --api-key"))?;
        let local = listener.local_addr().map_err(Failure::failed)?;
        let name = config.model_names.first().cloned().unwrap_or_default();
        let model = Arc::new(package);
        let server = match &recording {
            Some(recording) => {
                let captures = recording.captures.clone();
                Server::recorded(config, model, engine, backend, captures)
            }
            None => Server::new(config, model, engine, backend),
        };
        let server = server.map_err(Failure::failed)?;
        let handle = server.handle();
        let drained = tokio::spawn(drain_on_signal(handle.clone(), args.grace_seconds));
        announce(&about, local, &name).map_err(Failure::failed)?;
        lockstep_server::serve(listener, server)
            .await
            .map_err(Failure::failed)?;
        // The task that closed the server has said all it has to say, or the listener failed above.
        match drained.await.map_err(Failure::failed)? {
            Some(reason) => Err(Failure::failed(format!("the engine stopped: {reason}"))),
            None => Ok(()),
        }
    });
    if let Some(recording) = &recording {
        recording.flush();
    }
    // Connections of clients that don't read must not keep the process.
    runtime.shutdown_background();
    result
}

fn server_config(args: &ServeArgs, name: &str, api_keys: Vec<String>) -> ServerConfig {
    let mut config = ServerConfig::new(name);
    if !args.served_model_name.is_empty() {
        config.model_names.clone_from(&args.served_model_name);
    }
    config.limits = Limits {
        body_bytes_max: (args.max_body_mib as usize) << 20,
        ..Limits::default()
    };
    config.delivery = match args.delivery {
        DeliveryKind::Auto => DeliveryPolicy::Auto,
        DeliveryKind::Eager => DeliveryPolicy::Eager,
        DeliveryKind::Whole => DeliveryPolicy::Whole,
    };
    config.tool_grammar = match args.tool_grammar {
        ToolGrammarKind::Asked => ToolGrammar::Asked,
        ToolGrammarKind::Always => ToolGrammar::Always,
    };
    config.sampling_policy = match args.sampling_ranges {
        RangesKind::Clamp => SamplingPolicy::Clamp,
        RangesKind::Refuse => SamplingPolicy::Refuse,
    };
    config.api_keys = api_keys;
    config.default_max_tokens = args.default_max_tokens;
    config
}

/// An IPv6 address needs brackets before a port.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn api_keys(args: &ServeArgs) -> Result<Vec<String>, Failure> {
    let mut keys: Vec<String> = args.api_key.iter().cloned().collect();
    if let Some(path) = &args.api_key_file {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::input(format!("--api-key-file {}: {error}", path.display()), "")
        })?;
        keys.extend(
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned),
        );
        if keys.is_empty() {
            let what = format!("--api-key-file {} holds no key", path.display());
            return Err(Failure::input(what, "write one key a line"));
        }
    }
    if keys.iter().any(String::is_empty) {
        return Err(Failure::usage(
            "the API key is empty",
            "leave it out to serve without one",
        ));
    }
    Ok(keys)
}

fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    // A log that was set up before is as good as this one.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(Paint::stderr().is_coloured()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

fn announce(about: &str, address: SocketAddr, model: &str) -> io::Result<()> {
    let paint = Paint::stdout();
    let url = format!("http://{address}");
    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "Serving {} on {}",
        paint.bold(about),
        paint.cyan(&url)
    )?;
    if io::stdout().is_terminal() {
        writeln!(
            stdout,
            "\n  curl {url}/v1/chat/completions -H 'content-type: application/json' \\\n    \
             -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\
             \"What is the capital of Peru?\"}}]}}'\n\n\
             {}",
            paint.dim("ctrl-c lets running answers finish, a second one ends at once"),
        )?;
    }
    stdout.flush()
}

/// Waits for a signal, then drains. A second signal ends the program at once. Says why the engine had
/// stopped by itself before, if it had.
async fn drain_on_signal(handle: ServerHandle, grace_seconds: u64) -> Option<String> {
    let listening = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    let (Ok(mut terminate), Ok(mut interrupt)) = listening else {
        tracing::error!("no signal can be handled: the server will end without draining");
        return None;
    };
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let stopped = handle.stopped();
    eprintln!("draining: running answers have {grace_seconds} s");
    let second = async {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::select! {
        biased;
        () = second => {
            eprintln!("ended at once");
            std::process::exit(Exit::Interrupted as i32);
        }
        in_time = handle.drain(Duration::from_secs(grace_seconds)) => {
            if !in_time {
                eprintln!("the grace period ended before every answer did");
            }
        }
    }
    stopped
}
