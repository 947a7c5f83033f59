//! `lockstep bench scheduler`: what a step costs the engine itself. A stub answers each plan at once, so that
//! what is timed is `plan`, `commit`, and what a server asks for after each step. It must never time the stub.

mod stub;
mod table;

use super::{contention::Meter, host};
use crate::{
    exit::Failure,
    statistics::{mean, quantile},
    terminal::{Bars, Paint},
};
use clap::ValueEnum;
use lockstep_core::{
    Drafter, Engine, EngineConfig, EngineFault, Event, Speculation, Time, Vocabulary,
};
use lockstep_package::Progress;
use lockstep_step::{BackendLimits, StepOutput, StepPlan};
use serde_json::{Value, json};
use std::{env, fs, hint::black_box, io, path::PathBuf, sync::Arc, time::Instant};

const EXAMPLES: &str = "\
Examples:
  lockstep bench scheduler
  lockstep bench scheduler --seqs 256 --drafts own --cache off,on
  lockstep bench scheduler --json --save scheduler.json

Run it from a release build, on an idle machine.";

/// Measures the engine without a model.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SchedulerArgs {
    /// Numbers of running sequences.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [16, 64, 256, 1024],
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    seqs: Vec<u32>,
    /// Who drafts.
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [Drafts::Off, Drafts::Own, Drafts::Recorded])]
    drafts: Vec<Drafts>,
    /// Whether prefixes are kept.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Switch::Off, Switch::On])]
    cache: Vec<Switch>,
    /// What a step has to name: blocks, or rows of state too.
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [Model::Attention, Model::Hybrid])]
    model: Vec<Model>,
    /// Whether each step is planned before the one before it is committed.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Switch::Off])]
    overlap: Vec<Switch>,
    /// Steps of a round, after all prompts are read.
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: u32,
    /// Rounds; the one with the lowest median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Writes the JSON to a file.
    #[arg(long, value_name = "FILE.json")]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Drafts {
    /// Nobody.
    Off,
    /// The n-gram and suffix drafters, which look at what was written.
    Own,
    /// A recording, three tokens a step, one of four wrong.
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    Off,
    On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Blocks only.
    Attention,
    /// Blocks, and a row of state after each scored token.
    Hybrid,
}

/// What one measurement is of.
#[derive(Clone, Copy, Debug)]
struct Variant {
    model: Model,
    drafts: Drafts,
    cache: Switch,
    overlap: Switch,
    num_seqs: u32,
}

/// Drafts of a step where they are recorded.
const DRAFTS_RECORDED: u32 = 3;

/// Drafts of a step where they are the engine's own, at most: what the flag's default is.
const DRAFTS_OWN: u32 = 8;

/// Steps between the last prompt's end and the first step that is measured.
const STEPS_WARM: u32 = 16;

/// Runs the command.
pub fn run(args: &SchedulerArgs) -> Result<(), Failure> {
    if cfg!(debug_assertions) {
        let note = "this is a debug build: figures of a release build count";
        eprintln!("{}", Paint::stderr().yellow(note));
    }
    if let Some(path) = &args.save {
        // Said before anything is measured.
        let mut options = fs::OpenOptions::new();
        let opened = options.create(true).append(true).open(path);
        opened.map_err(|error| unwritable(args, &error))?;
    }
    let meter = Meter::start();
    let variants = variants(args).map_err(|fault| Failure::failed(fault.to_string()))?;
    let contention = meter.stop();
    let report = json!({
        "benchmark": "scheduler",
        "version": env!("CARGO_PKG_VERSION"),
        "debug_build": cfg!(debug_assertions),
        "command_line": env::args().collect::<Vec<_>>(),
        "machine": host::about(),
        "contention": contention.verdict(),
        "others_share_of_processors": contention.others,
        "settings": {
            "steps": args.steps,
            "rounds": args.rounds,
            "prompt_tokens": [stub::PROMPT_LEN.0, stub::PROMPT_LEN.1],
            "common_tokens": stub::NUM_COMMON,
        },
        "unit": "us",
        "variants": variants,
    });
    if let Some(path) = &args.save {
        fs::write(path, format!("{report:#}\n")).map_err(|error| unwritable(args, &error))?;
    }
    if args.json {
        println!("{report:#}");
    } else {
        table::print(&report);
    }
    Ok(())
}

/// Measures everything that was asked for.
fn variants(args: &SchedulerArgs) -> Result<Vec<Value>, EngineFault> {
    let vocabulary = stub::vocabulary();
    let bars = Bars::default();
    bars.begin("measuring", (all(args).count() * args.seqs.len()) as u64);
    let mut variants = Vec::new();
    for variant in all(args) {
        let mut rows = Vec::new();
        for &num_seqs in &args.seqs {
            let variant = Variant {
                num_seqs,
                ..variant
            };
            rows.push(measure(args, variant, &vocabulary)?);
            bars.advance(1);
        }
        variants.push(json!({
            "model": name(variant.model),
            "drafts": name(variant.drafts),
            "prefix_cache": name(variant.cache),
            "overlap": name(variant.overlap),
            "linearity": linearity(&rows),
            "rows": rows,
        }));
    }
    bars.end();
    Ok(variants)
}

/// Every variant that is asked for, of no sequences yet.
fn all(args: &SchedulerArgs) -> impl Iterator<Item = Variant> + '_ {
    let models = args.model.iter();
    let with_overlap = models.flat_map(|&model| args.overlap.iter().map(move |&o| (model, o)));
    let with_cache =
        with_overlap.flat_map(|(model, o)| args.cache.iter().map(move |&cache| (model, o, cache)));
    with_cache.flat_map(|(model, overlap, cache)| {
        args.drafts.iter().map(move |&drafts| Variant {
            model,
            drafts,
            cache,
            overlap,
            num_seqs: 0,
        })
    })
}

fn unwritable(args: &SchedulerArgs, error: &io::Error) -> Failure {
    let path = args.save.clone().unwrap_or_default();
    let what = format!("--save {}: {error}", path.display());
    Failure::usage(what, "name a file in a folder that can be written")
}

/// As it is written in the flag.
fn name(value: impl ValueEnum) -> String {
    let name = value.to_possible_value();
    name.map_or(String::new(), |name| name.get_name().to_owned())
}

/// Cost per sequence of the most sequences by that of the fewest: 1 is linear, less is better.
fn linearity(rows: &[Value]) -> Value {
    let each = |row: Option<&Value>| row?["ns_per_seq"].as_f64();
    let by_seqs = |row: &&Value| row["seqs"].as_u64();
    let few = each(rows.iter().min_by_key(by_seqs));
    let many = each(rows.iter().max_by_key(by_seqs));
    match (few, many) {
        (Some(few), Some(many)) if rows.len() > 1 && few > 0.0 => json!(many / few),
        _ => Value::Null,
    }
}

/// Microseconds of the steps of a round, by what was done in them, and what came of it.
#[derive(Default)]
struct Round {
    plan: Vec<f64>,
    commit: Vec<f64>,
    both: Vec<f64>,
    poll: Vec<f64>,
    num_drafts: u64,
    num_tokens: u64,
    num_query_tokens: u64,
}

fn measure(
    args: &SchedulerArgs,
    variant: Variant,
    vocabulary: &Arc<Vocabulary>,
) -> Result<Value, EngineFault> {
    let mut best: Option<Round> = None;
    for _ in 0..args.rounds {
        let round = Bench::new(args, variant, vocabulary.clone()).round(args.steps)?;
        let is_better = |best: &Round| quantile(&round.both, 0.5) < quantile(&best.both, 0.5);
        if best.as_ref().is_none_or(is_better) {
            best = Some(round);
        }
    }
    let round = best.expect("there is one round at least");
    let spread = |times: &[f64]| {
        json!({
            "p50": quantile(times, 0.5),
            "mean": mean(times),
            "p99": quantile(times, 0.99),
            "max": quantile(times, 1.0),
        })
    };
    let num_parts = f64::from(variant.num_seqs) * round.both.len() as f64;
    Ok(json!({
        "seqs": variant.num_seqs,
        "plan_us": spread(&round.plan),
        "commit_us": spread(&round.commit),
        "step_us": spread(&round.both),
        "poll_us": spread(&round.poll),
        "ns_per_seq": quantile(&round.both, 0.5) * 1e3 / f64::from(variant.num_seqs),
        "drafts_per_seq": round.num_drafts as f64 / num_parts,
        "tokens_per_seq": round.num_tokens as f64 / num_parts,
        "query_tokens_per_seq": round.num_query_tokens as f64 / num_parts,
    }))
}

/// An engine with so many sequences.
struct Bench {
    engine: Engine,
    num_seqs: usize,
    /// A step that was planned ahead, with its answer.
    ahead: Option<(StepPlan, StepOutput)>,
    events: Vec<Event>,
    now: Time,
}

impl Bench {
    fn new(args: &SchedulerArgs, variant: Variant, vocabulary: Arc<Vocabulary>) -> Bench {
        let num_seqs = variant.num_seqs;
        // Nobody ends while it is measured.
        let max_tokens = (args.steps + STEPS_WARM + 64) * (1 + DRAFTS_OWN);
        let seq_len_max = stub::PROMPT_LEN.1 as u32 + max_tokens;
        let limits = BackendLimits {
            vocab_size: stub::VOCAB_SIZE,
            num_blocks: num_seqs * (seq_len_max.div_ceil(64) + 1),
            num_rows: match variant.model {
                Model::Attention => 0,
                Model::Hybrid => num_seqs * 32,
            },
            seq_len_max,
            query_tokens_max: 1 << 20,
        };
        let config = EngineConfig {
            max_num_seqs: num_seqs,
            max_num_batched_tokens: (num_seqs * 32).max(8192),
            max_waiting_requests: num_seqs,
            max_waiting_tokens: u64::MAX,
            chunk_tokens_max: 512,
            speculation: match variant.drafts {
                Drafts::Own => Speculation {
                    suffix: DRAFTS_OWN,
                    ngram: DRAFTS_OWN,
                    ..Speculation::OFF
                },
                Drafts::Off | Drafts::Recorded => Speculation::OFF,
            },
            prefix_cache: variant.cache == Switch::On,
            overlap: variant.overlap == Switch::On,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config, limits, vocabulary).expect("no limit is 0");
        for idx in 0..u64::from(num_seqs) {
            let request = stub::request(idx, max_tokens);
            let seq = engine.submit(Time(0), request).expect("there is room");
            assert_eq!(seq.0, idx, "texts are told apart by the ids of sequences");
            if variant.drafts == Drafts::Recorded {
                let output = stub::recording(idx, max_tokens);
                let depths = vec![DRAFTS_RECORDED];
                engine.set_drafter(seq, Drafter::Replay { output, depths });
            }
        }
        Bench {
            engine,
            num_seqs: num_seqs as usize,
            ahead: None,
            events: Vec::new(),
            now: Time(0),
        }
    }

    /// Reads all prompts, then measures so many steps of all sequences.
    fn round(mut self, num_steps: u32) -> Result<Round, EngineFault> {
        let mut warm = Round::default();
        while !self.step(&mut warm)? {}
        for _ in 0..STEPS_WARM {
            self.step(&mut warm)?;
        }
        let before = self.engine.stats().totals;
        let mut round = Round::default();
        for _ in 0..num_steps {
            let is_whole = self.step(&mut round)?;
            assert!(is_whole, "every sequence is in every step");
        }
        let after = self.engine.stats().totals;
        round.num_drafts = after.num_drafts - before.num_drafts;
        round.num_tokens = after.num_output_tokens - before.num_output_tokens;
        round.num_query_tokens = after.num_query_tokens - before.num_query_tokens;
        Ok(round)
    }

    /// One step, in the order of the engine's own loop. True if it wrote in all sequences.
    fn step(&mut self, round: &mut Round) -> Result<bool, EngineFault> {
        self.now.0 += 1000;
        let start = Instant::now();
        let asked = self.engine.plan_proposals();
        let plan = self.engine.plan(self.now);
        let planned = micros(start);
        assert!(asked.is_none(), "no model drafts here");
        let answered = plan.map(|plan| {
            let output = stub::answer(&plan);
            (plan, output)
        });
        let due = match self.engine.is_overlapped() {
            true => std::mem::replace(&mut self.ahead, answered),
            false => answered,
        };
        let Some((plan, output)) = due else {
            return self.engine.fault().cloned().map_or(Ok(false), Err);
        };
        let is_whole = self.is_whole(&plan);
        let start = Instant::now();
        self.engine.commit(self.now, output)?;
        self.engine.recycle(plan);
        let committed = micros(start);
        let start = Instant::now();
        self.events = self.engine.poll_events();
        black_box((&self.events, self.engine.stats()));
        round.poll.push(micros(start));
        round.plan.push(planned);
        round.commit.push(committed);
        round.both.push(planned + committed);
        Ok(is_whole)
    }

    fn is_whole(&self, plan: &StepPlan) -> bool {
        let is_scored = plan.seqs.iter().all(|seq| !seq.scored.is_empty());
        is_scored && plan.seqs.len() == self.num_seqs
    }
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1e3
}
