//! `lockstep bench cuda`: how fast a GPU decodes and reads prompts, beside what it can copy and multiply in the same
//! run, and what the order of sums costs. It must never print a speed without its limit, nor one of an emulation
//! without saying so.

mod shapes;
mod steps;
mod table;

use super::work;
use crate::{
    cuda,
    exit::Failure,
    flags::{CudaArgs, ModelArgs, WeightsKind},
    session,
    statistics::median,
    terminal::Bars,
};
use lockstep_cuda::{
    CudaBackend, CudaOptions, Device, DeviceBench, DeviceError, MatrixShape, SumOrder, matrices,
};
use lockstep_package::{ModelConfig, Package, Progress};
use serde_json::{Value, json};
use shapes::ShapeKind;
use std::time::Instant;
use steps::{PROMPT_LEN, Steps};

const EXAMPLES: &str = "\
Without -m a model of random weights is made on the device: nothing is downloaded, and what it says
means nothing.

Examples:
  lockstep bench cuda
  lockstep bench cuda --shape 1b --batch 1,64
  lockstep bench cuda -m models/smollm2-135m --json

Exit codes: 0 measured, 2 wrong command line, 3 there is no such device or model, or it has too
little memory, 4 the device failed.";

/// Measures a GPU.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeviceArgs {
    /// The shape of the model of random weights.
    #[arg(long, value_enum, default_value_t = ShapeKind::Llama8b, conflicts_with = "model")]
    shape: ShapeKind,
    /// Numbers of sequences that are decoded together.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 32, 128],
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: Vec<u32>,
    /// Length of the prompt that is read.
    #[arg(long, value_name = "TOKENS", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(2..=65536))]
    prompt_tokens: u32,
    /// Tokens that each sequence writes.
    #[arg(long, value_name = "TOKENS", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    decode_tokens: u32,
    /// Measurements of each figure; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Another seed draws other weights.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
    /// The device.
    #[command(flatten)]
    cuda: CudaArgs,
}

/// Tokens of one step, unless more sequences decode.
const STEP_TOKENS_MAX: u32 = 2048;

/// Runs the command.
pub fn run(args: &DeviceArgs) -> Result<(), Failure> {
    let device = cuda::open(&args.cuda)?;
    if device.is_emulated() {
        eprintln!("this is an emulation on the host: its figures mean nothing");
    }
    let package = match args.model.model {
        Some(_) => Some(session::open_package(&args.model)?),
        None => None,
    };
    let config = match &package {
        Some(package) => package.config.clone(),
        None => args.shape.config(),
    };
    let report = measure(args, &device, package.as_ref(), &config)?;
    match args.json {
        true => println!("{report:#}"),
        false => table::print(&report),
    }
    Ok(())
}

fn measure(
    args: &DeviceArgs,
    device: &Device,
    package: Option<&Package>,
    config: &ModelConfig,
) -> Result<Value, Failure> {
    let failed = |error: DeviceError| cuda::failure(&error);
    let options = options(args);
    let bench = DeviceBench::new(device, options.kernel_cache.as_deref()).map_err(failed)?;
    let bars = Bars::default();
    bars.begin("measuring", 4 + 2 * args.batch.len() as u64);
    let limits = limits(args, device, &bench).map_err(failed)?;
    bars.advance(2);
    // Before the model takes the memory.
    let exactness = exactness(args, config, &bench, &|| bars.advance(1)).map_err(failed)?;
    let backend = match package {
        Some(package) => cuda::load(device, (package, None), &options, &Bars::default())?,
        None => {
            let backend = CudaBackend::random(device, config, &options, args.seed);
            backend.map_err(|error| cuda::load_failure(&error))?
        }
    };
    cuda::print_memory(&backend, &options);
    let mut steps = Steps::new(backend);
    let work = work::count(config, WeightsKind::Q8);
    let decode = decode(args, &mut steps, &work, &limits, &|| bars.advance(1))?;
    let prefill = prefill(args, &mut steps, &work, &limits)?;
    bars.advance(1);
    bars.end();
    Ok(json!({
        "device": device.name(),
        "architecture": device.architecture(),
        "emulated": device.is_emulated(),
        "model": package.map_or_else(|| args.shape.name(), |package| package.name.clone()),
        "random_weights": package.is_none(),
        "settings": {
            "prompt_tokens": args.prompt_tokens, "decode_tokens": args.decode_tokens,
            "rounds": args.rounds, "seed": args.seed, "weights": "q8",
        },
        "bytes_per_step": work.bytes,
        "ops_per_token": work.ops,
        "copy_gb_per_second": limits.copy / 1e9,
        "int8_tops": limits.int8 / 1e12,
        "int8_instruction": bench.int8_instruction(),
        "decode": decode,
        "prefill": prefill,
        "exactness": exactness,
    }))
}

fn options(args: &DeviceArgs) -> CudaOptions {
    let batch_max = args.batch.iter().copied().max().unwrap_or(1);
    let decoded = PROMPT_LEN + args.decode_tokens;
    let blocks = |tokens: u32| tokens.div_ceil(lockstep_step::BLOCK_LEN);
    CudaOptions {
        num_blocks: (batch_max * blocks(decoded)).max(blocks(args.prompt_tokens)),
        num_rows: 2 * batch_max,
        query_tokens_max: args.prompt_tokens.min(STEP_TOKENS_MAX).max(batch_max),
        seq_len_max: Some(decoded.max(args.prompt_tokens)),
        ..cuda::options(&args.cuda)
    }
}

/// What the device does at most: bytes read and written per second, and int8 operations.
struct Limits {
    copy: f64,
    int8: f64,
}

fn limits(args: &DeviceArgs, device: &Device, bench: &DeviceBench) -> Result<Limits, DeviceError> {
    let (free, _) = device.memory_info()?;
    // Far more than any cache holds; an emulation copies with the host's own memory.
    let bytes_max = if device.is_emulated() {
        1 << 20
    } else {
        1 << 30
    };
    let num_bytes = (free / 4).min(bytes_max);
    let copy = bench.copy(num_bytes)?;
    let seconds = per_time(args.rounds, |times| bench.run_copy(&copy, times))?;
    let mut ops_per_round = 0.0;
    let round = per_time(args.rounds, |rounds| {
        ops_per_round = bench.run_int8(rounds)? as f64 / f64::from(rounds);
        Ok(())
    })?;
    Ok(Limits {
        copy: 2.0 * num_bytes as f64 / seconds,
        int8: ops_per_round / round,
    })
}

/// Below this a clock and a launch are part of what is measured.
const SECONDS_MIN: f64 = 0.02;

/// Seconds of one of many, the median of the rounds; so many at once that a round takes long enough.
fn per_time(
    num_rounds: u32,
    mut run: impl FnMut(u32) -> Result<(), DeviceError>,
) -> Result<f64, DeviceError> {
    let mut timed = |times: u32| -> Result<f64, DeviceError> {
        let start = Instant::now();
        run(times)?;
        Ok(start.elapsed().as_secs_f64())
    };
    // Once for nothing.
    timed(1)?;
    let mut times = 1;
    while timed(times)? < SECONDS_MIN && times < 1 << 20 {
        times *= 4;
    }
    let rounds = (0..num_rounds).map(|_| Ok(timed(times)? / f64::from(times)));
    Ok(median(&rounds.collect::<Result<Vec<f64>, DeviceError>>()?))
}

/// How much longer the products of a token take because their sums have an order.
fn exactness(
    args: &DeviceArgs,
    config: &ModelConfig,
    bench: &DeviceBench,
    advance: &dyn Fn(),
) -> Result<Vec<Value>, DeviceError> {
    let shapes = matrices(config);
    let (head, of_layer) = shapes
        .split_last()
        .map_or((None, &[][..]), |(h, l)| (Some(h), l));
    let mut rows = Vec::new();
    let step = args.prompt_tokens.min(STEP_TOKENS_MAX);
    for &tokens in args.batch.iter().chain([&step]) {
        let mut sums = [0.0, 0.0];
        let counted = of_layer.iter().map(|shape| (shape, config.num_layers));
        // A prompt's logits are wanted at its end only.
        let head = head.filter(|_| tokens != step).map(|shape| (shape, 1));
        for (&shape, count) in counted.chain(head) {
            let seconds = both_orders(args, bench, tokens as usize, shape)?;
            for (sum, seconds) in sums.iter_mut().zip(seconds) {
                *sum += seconds * count as f64;
            }
        }
        let [exact, free] = sums;
        rows.push(json!({
            "tokens": tokens, "exact_ms": exact * 1e3, "free_ms": free * 1e3,
            "ratio": exact / free,
        }));
        advance();
    }
    Ok(rows)
}

fn both_orders(
    args: &DeviceArgs,
    bench: &DeviceBench,
    tokens: usize,
    shape: MatrixShape,
) -> Result<[f64; 2], DeviceError> {
    let product = bench.product(tokens, shape)?;
    let mut seconds = [0.0; 2];
    for (to, order) in seconds.iter_mut().zip([SumOrder::Exact, SumOrder::Free]) {
        *to = per_time(args.rounds, |times| {
            bench.run_product(&product, order, times)
        })?;
    }
    Ok(seconds)
}

fn decode(
    args: &DeviceArgs,
    steps: &mut Steps,
    work: &work::Work,
    limits: &Limits,
    advance: &dyn Fn(),
) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for &batch in &args.batch {
        // Once for nothing: graphs are recorded.
        steps.decode(batch, args.decode_tokens)?;
        let rounds = (0..args.rounds).map(|_| steps.decode(batch, args.decode_tokens));
        let rounds = rounds.collect::<Result<Vec<f64>, Failure>>()?;
        let per_step = median(&rounds) / f64::from(args.decode_tokens);
        let (bytes, ops) = (
            work.bytes / per_step,
            work.ops * f64::from(batch) / per_step,
        );
        rows.push(json!({
            "batch": batch,
            "tokens_per_second": f64::from(batch) / per_step,
            "ms_per_step": per_step * 1e3,
            "weights_gb_per_second": bytes / 1e9,
            "share_of_copy": bytes / limits.copy,
            "share_of_int8": ops / limits.int8,
        }));
        advance();
    }
    Ok(rows)
}

fn prefill(
    args: &DeviceArgs,
    steps: &mut Steps,
    work: &work::Work,
    limits: &Limits,
) -> Result<Value, Failure> {
    steps.prefill(args.prompt_tokens)?;
    let rounds = (0..args.rounds).map(|_| steps.prefill(args.prompt_tokens));
    let seconds = median(&rounds.collect::<Result<Vec<f64>, Failure>>()?);
    let speed = f64::from(args.prompt_tokens) / seconds;
    let ops = work.ops_without_head * speed;
    Ok(json!({
        "tokens_per_second": speed,
        "tops": ops / 1e12,
        "share_of_int8": ops / limits.int8,
    }))
}
