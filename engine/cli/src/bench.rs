//! `lockstep bench`: how fast prompts are read and answers written, beside what this machine could do at
//! most at that moment. It measures the whole engine, plan and commit included, and says whether others
//! used the processors meanwhile. It must never print a speed without its limit.

mod contention;
mod device;
mod host;
mod machine;
mod masks;
mod scheduler;
mod serve;
mod work;

use crate::{
    dialogue::{LimitArgs, plain_request},
    exit::Failure,
    flags::{
        BackendKind, CudaArgs, DrafterArgs, EngineArgs, IsaKind, MachineArgs, ModelArgs,
        OverlapKind, RejectedKind, WeightsKind,
    },
    session::{self, Session},
    statistics::median,
    terminal::{Bars, Paint},
};
use contention::{Contention, Meter};
use lockstep_core::Speculation;
use lockstep_package::{Package, Progress};
use lockstep_step::{SamplingParams, TokenId};
use serde_json::{Value, json};
use std::{process::ExitCode, sync::Arc, time::Instant};
use work::Work;

const EXAMPLES: &str = "\
Examples:
  lockstep bench
  lockstep bench -m models/smollm2-135m --threads 1,2 --batch 1,8
  lockstep bench --weights f32 --json
  lockstep bench masks -m models/smollm2-135m
  lockstep bench serve --concurrency 1,8
  lockstep bench cuda
  lockstep bench scheduler --seqs 256

Run it from a release build, on an idle machine: a row that says CONTENDED is worth little.";

/// Measures speed beside the machine's own limits.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Thread counts to measure [default: 1 and one per core].
    #[arg(long, short = 't', value_name = "N,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Numbers of sequences that are decoded together.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8],
          value_parser = clap::value_parser!(u32).range(1..=256))]
    batch: Vec<u32>,
    /// Length of the prompt that is read.
    #[arg(long, value_name = "TOKENS", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(2..=65536))]
    prompt_tokens: u32,
    /// Tokens that each sequence writes.
    #[arg(long, value_name = "TOKENS", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(2..=65536))]
    decode_tokens: u32,
    /// Measurements of each figure; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// int8 weights for serving, or weights as stored.
    #[arg(long, value_enum, default_value_t = WeightsKind::Q8)]
    weights: WeightsKind,
    /// Vector instructions.
    #[arg(long, value_enum, default_value_t = IsaKind::Auto)]
    isa: IsaKind,
    /// Lays steps out in buffers of a few fixed sizes, as a GPU's graphs need them.
    #[arg(long)]
    static_buffers: bool,
    /// Leaves out the machine's own limits, and the gibibyte that measuring them takes.
    #[arg(long)]
    no_limits: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
}

/// What else can be measured.
#[allow(clippy::large_enum_variant, reason = "one value per process")]
#[derive(clap::Subcommand, Debug)]
enum What {
    /// What holding an answer to a grammar costs, beside plain llguidance in the same run.
    Masks(masks::MasksArgs),
    /// How fast a server answers many requests, over HTTP.
    Serve(serve::LoadArgs),
    /// How fast a GPU computes, beside what it can copy and multiply, and what exactness costs.
    Cuda(device::DeviceArgs),
    /// What the engine itself costs per step, with a model that costs nothing.
    Scheduler(scheduler::SchedulerArgs),
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> ExitCode {
    match &args.what {
        Some(What::Masks(args)) => crate::exit::end(masks::run(args)),
        Some(What::Serve(args)) => crate::exit::end(serve::run(args)),
        Some(What::Cuda(args)) => crate::exit::end(device::run(args)),
        Some(What::Scheduler(args)) => crate::exit::end(scheduler::run(args)),
        None => crate::exit::end(bench(args)),
    }
}

/// The figures of one thread count.
struct Row {
    threads: u32,
    bandwidth: Option<f64>,
    int8: Option<(f64, &'static str)>,
    prefill: f64,
    decode: Vec<(u32, f64)>,
    contention: Contention,
}

fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let threads = match args.threads.as_slice() {
        [] => default_threads(),
        given => given.to_vec(),
    };
    if cfg!(debug_assertions) {
        let paint = Paint::stderr();
        eprintln!(
            "{}",
            paint.yellow("this is a debug build: figures of a release build count")
        );
    }
    let mut package = Arc::new(session::open_package(&args.model)?);
    let work = work::count(&package.config, args.weights);
    let buffer = if args.no_limits {
        None
    } else {
        machine::Buffer::new()
    };
    let mut rows = Vec::new();
    for threads in threads {
        let row;
        (row, package) = measure(args, package, threads, buffer.as_ref())?;
        rows.push(row);
    }
    if args.json {
        println!("{:#}", as_json(args, &package, &work, &rows));
    } else {
        print_table(args, &package, &work, &rows);
    }
    Ok(())
}

fn default_threads() -> Vec<u32> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    if cores == 1 { vec![1] } else { vec![1, cores] }
}

fn machine_args(args: &BenchArgs, threads: u32) -> MachineArgs {
    MachineArgs {
        backend: BackendKind::Cpu,
        weights: args.weights,
        isa: args.isa,
        threads: Some(threads),
        static_buffers: args.static_buffers,
        cuda: CudaArgs::default(),
    }
}

fn measure(
    args: &BenchArgs,
    package: Arc<Package>,
    threads: u32,
    buffer: Option<&machine::Buffer>,
) -> Result<(Row, Arc<Package>), Failure> {
    let machine = machine_args(args, threads);
    let batch_max = args.batch.iter().copied().max().unwrap_or(1);
    // Room for the largest batch, in blocks of 64 and with one to spare for each sequence.
    let seq_len = args.prompt_tokens.max(DECODE_PROMPT_LEN) + args.decode_tokens;
    let engine = EngineArgs {
        max_num_seqs: batch_max,
        max_num_batched_tokens: args.prompt_tokens.clamp(512, 4096),
        max_model_len: Some(seq_len + 1),
        kv_blocks: Some(batch_max * (seq_len.div_ceil(64) + 1)),
        kv_cache_gib: None,
        speculate: Speculation::OFF,
        drafters: DrafterArgs::default(),
        // What was computed once would not be measured again.
        no_prefix_cache: true,
        overlap: OverlapKind::Auto,
        rejected_drafts: RejectedKind::Trim,
        checked: false,
    };
    let backend = session::open_backend(&package, &machine, &engine)?;
    let mut session = Session::new(package, backend, &engine)?;
    let bars = Bars::default();
    let num_measurements = u64::from(args.rounds) * (1 + args.batch.len() as u64) + 2;
    bars.begin(&format!("measuring, {threads} threads"), num_measurements);
    let meter = Meter::start();
    let bandwidth = buffer.map(|buffer| machine::read_bandwidth(buffer, threads as usize, 9));
    bars.advance(1);
    let int8 = (!args.no_limits).then(|| machine::int8_peak(threads as usize, 5));
    bars.advance(1);
    // Once for nothing: memory is touched, caches and clocks settle.
    time_run(&mut session, 1, args.prompt_tokens, 2)?;
    let mut prefill = Vec::new();
    let mut decode: Vec<Vec<f64>> = vec![Vec::new(); args.batch.len()];
    for _ in 0..args.rounds {
        let timing = time_run(&mut session, 1, args.prompt_tokens, 2)?;
        prefill.push(timing.prefill_tokens / timing.prefill_seconds);
        bars.advance(1);
        for (idx, &batch) in args.batch.iter().enumerate() {
            let timing = time_run(&mut session, batch, DECODE_PROMPT_LEN, args.decode_tokens)?;
            decode[idx].push(timing.decode_tokens / timing.decode_seconds);
            bars.advance(1);
        }
    }
    let contention = meter.stop();
    bars.end();
    let decode = args
        .batch
        .iter()
        .zip(&decode)
        .map(|(batch, speeds)| (*batch, median(speeds)));
    let row = Row {
        threads,
        bandwidth,
        int8,
        prefill: median(&prefill),
        decode: decode.collect(),
        contention,
    };
    Ok((row, session.into_package()))
}

/// Prompt of a sequence whose decoding is measured: short, so that weights decide and not the cache.
const DECODE_PROMPT_LEN: u32 = 32;

#[derive(Default)]
struct Timing {
    prefill_tokens: f64,
    prefill_seconds: f64,
    decode_tokens: f64,
    decode_seconds: f64,
}

fn time_run(
    session: &mut Session,
    batch: u32,
    prompt_len: u32,
    decode_len: u32,
) -> Result<Timing, Failure> {
    let limits = LimitArgs {
        max_tokens: Some(decode_len),
        stop: Vec::new(),
        ignore_eos: true,
    };
    let vocab_size = session.package.config.vocab_size as u32;
    for seq in 0..batch {
        // Any tokens will do, if no two sequences share them.
        let prompt = (0..prompt_len).map(|idx| {
            let mixed = (idx + seq * 7919).wrapping_mul(2_654_435_761) >> 8;
            TokenId(mixed % vocab_size)
        });
        let sampling = SamplingParams::greedy();
        let mut request = plain_request(&session.package, prompt.collect(), sampling, &limits);
        request.token_events = false;
        session.submit(request)?;
    }
    let mut timing = Timing::default();
    let batch = f64::from(batch);
    loop {
        let (start, before) = (Instant::now(), session.totals());
        if !session.step()? {
            break;
        }
        session.poll_events();
        let (seconds, after) = (start.elapsed().as_secs_f64(), session.totals());
        let computed = (after.num_query_tokens - before.num_query_tokens) as f64;
        let written = (after.num_output_tokens - before.num_output_tokens) as f64;
        // A step that reads prompts computes more tokens than it writes.
        if computed > written {
            timing.prefill_tokens += computed;
            timing.prefill_seconds += seconds;
        } else if computed == batch {
            timing.decode_tokens += computed;
            timing.decode_seconds += seconds;
        }
    }
    session.poll_events();
    if timing.decode_tokens == 0.0 || timing.prefill_tokens == 0.0 {
        return Err(Failure::failed("nothing was measured"));
    }
    Ok(timing)
}

/// The most tokens per second that the machine allows: by reading weights once per step, and by
/// multiplying them, if int8 is what is multiplied.
fn limit(row: &Row, work: &Work, batch: f64, ops: f64, weights: WeightsKind) -> Option<f64> {
    let by_bandwidth = row.bandwidth? * 1e9 / work.bytes * batch;
    match weights {
        WeightsKind::F32 => Some(by_bandwidth),
        WeightsKind::Q8 => Some(by_bandwidth.min(row.int8?.0 * 1e9 / ops)),
    }
}

fn prefill_limit(args: &BenchArgs, row: &Row, work: &Work) -> Option<f64> {
    match args.weights {
        WeightsKind::F32 => None,
        WeightsKind::Q8 => Some(row.int8?.0 * 1e9 / work.ops_without_head),
    }
}

fn as_json(args: &BenchArgs, package: &Package, work: &Work, rows: &[Row]) -> Value {
    let share = |speed: f64, limit: Option<f64>| limit.map(|limit| speed / limit);
    let rows = rows.iter().map(|row| {
        let decode = row.decode.iter().map(|(batch, speed)| {
            let limit = limit(row, work, f64::from(*batch), work.ops, args.weights);
            json!({"batch": batch, "tokens_per_second": speed, "limit": limit,
                   "share_of_limit": share(*speed, limit)})
        });
        let prefill = prefill_limit(args, row, work);
        json!({
            "threads": row.threads,
            "read_gb_per_second": row.bandwidth,
            "int8_gops": row.int8.map(|(peak, _)| peak),
            "int8_instruction": row.int8.map(|(_, name)| name),
            "prefill": {"tokens_per_second": row.prefill, "limit": prefill,
                        "share_of_limit": share(row.prefill, prefill)},
            "decode": decode.collect::<Vec<_>>(),
            "others_share_of_processors": row.contention.others,
            "verdict": row.contention.verdict(),
        })
    });
    json!({
        "model": package.name,
        "weights": args.weights.name(),
        "prompt_tokens": args.prompt_tokens,
        "decode_tokens": args.decode_tokens,
        "rounds": args.rounds,
        "bytes_per_token": work.bytes,
        "ops_per_token": work.ops,
        "debug_build": cfg!(debug_assertions),
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// Weights below this may not come from memory at all.
const CACHE_BYTES: f64 = 64e6;

fn print_table(args: &BenchArgs, package: &Package, work: &Work, rows: &[Row]) {
    let paint = Paint::stdout();
    println!(
        "{}  {} weights, {:.1} MB and {:.1} M operations per token",
        paint.bold(&package.name),
        args.weights.name(),
        work.bytes / 1e6,
        work.ops / 1e6,
    );
    println!(
        "prompt {}, answer {} tokens, median of {}",
        args.prompt_tokens, args.decode_tokens, args.rounds
    );
    if work.bytes < CACHE_BYTES {
        let note =
            "the weights may fit into caches, which are faster than the memory measured here";
        println!("{}", paint.dim(note));
    }
    for row in rows {
        println!("\n{}", heading(row, paint));
        println!(
            "{}",
            paint.dim("              tokens/s      limit   of limit")
        );
        print_speed("prefill", row.prefill, prefill_limit(args, row, work));
        for (batch, speed) in &row.decode {
            let limit = limit(row, work, f64::from(*batch), work.ops, args.weights);
            print_speed(&format!("decode x{batch}"), *speed, limit);
        }
    }
}

/// The machine's own figures.
fn heading(row: &Row, paint: Paint) -> String {
    let plural = if row.threads == 1 { "" } else { "s" };
    let mut parts = Vec::new();
    if let Some(speed) = row.bandwidth {
        parts.push(format!("reads {speed:.1} GB/s"));
    }
    if let Some((peak, name)) = row.int8 {
        parts.push(format!("int8 {peak:.0} GOPS by {name}"));
    }
    if let Some(others) = row.contention.others {
        parts.push(format!("others used {:.0} %", others * 100.0));
    }
    let verdict = match row.contention.verdict() {
        "CLEAN" => paint.green("CLEAN"),
        other => paint.yellow(other),
    };
    let threads = paint.bold(&format!("{} thread{plural}", row.threads));
    format!("{threads}   {}   {verdict}", parts.join(", "))
}

fn print_speed(name: &str, speed: f64, limit: Option<f64>) {
    match limit {
        Some(limit) => {
            println!(
                "{name:<12} {speed:>9.1} {limit:>10.0} {:>8.0} %",
                speed / limit * 100.0
            );
        }
        None => println!("{name:<12} {speed:>9.1} {:>10} {:>10}", "-", "-"),
    }
}
