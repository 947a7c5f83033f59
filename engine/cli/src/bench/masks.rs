//! `lockstep bench masks`: what it costs to hold answers to a grammar. Follows outputs that a model could
//! have written, token by token, and times each row, and a window of drafts with its rollback. Plain
//! `llguidance` follows the same tokens in the same run.

mod outputs;
mod vocabularies;

use crate::statistics::{median, quantile};
use crate::{
    exit::Failure,
    flags::ModelArgs,
    session,
    terminal::{Bars, Paint},
};
use lockstep_grammar::{Compiler, Constraint, GrammarLimits, GrammarVocabulary};
use lockstep_package::Progress;
use lockstep_step::{Bitmask, Matcher, TokenId};
use outputs::Output;
use serde_json::{Value, json};
use std::{sync::Arc, time::Instant};
use vocabularies::Named;

const EXAMPLES: &str = "\
Examples:
  lockstep bench masks
  lockstep bench masks -m models/smollm2-135m --synthetic 150000 --json

Run it from a release build, on an idle machine.";

/// Draft windows that are measured.
const DRAFTS: [usize; 4] = [1, 3, 7, 15];

/// Measures masks.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MasksArgs {
    /// Tokens of a made-up vocabulary that is measured too; 0 leaves it out.
    #[arg(long, value_name = "TOKENS", default_value_t = 150_000,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    synthetic: u32,
    /// Times that each output is followed.
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
}

/// Times in microseconds.
#[derive(Default)]
struct Times {
    compile: Vec<f64>,
    /// Of a matcher whose grammar is known, up to its first token.
    begin: Vec<f64>,
    row: Vec<f64>,
    /// Of asking what is forced, once per token.
    forced: Vec<f64>,
    /// By index into [`DRAFTS`].
    window: [Vec<f64>; DRAFTS.len()],
}

/// Runs the command.
pub fn run(args: &MasksArgs) -> Result<(), Failure> {
    let package = session::open_package(&args.model)?;
    let mut vocabularies = vec![vocabularies::of_package(&package)];
    if args.synthetic > 0 {
        vocabularies.push(vocabularies::synthetic(args.synthetic));
    }
    let bars = Bars::default();
    let mut rows = Vec::new();
    for vocabulary in vocabularies {
        let name = vocabulary.name.clone();
        let outputs = outputs::all();
        bars.begin(&name, outputs.len() as u64);
        let measured = measure_vocabulary(vocabulary, &outputs, args.rounds, &mut || {
            bars.advance(1);
        });
        bars.end();
        rows.extend(measured.map_err(Failure::failed)?);
    }
    if args.json {
        println!("{}", json!({"drafts": DRAFTS, "unit": "us", "rows": rows}));
    } else {
        print_table(&rows);
    }
    Ok(())
}

fn measure_vocabulary(
    vocabulary: Named,
    outputs: &[Output],
    rounds: u32,
    advance: &mut dyn FnMut(),
) -> Result<Vec<Value>, String> {
    let Named {
        name,
        vocabulary,
        tokenize,
    } = vocabulary;
    let mut rows = Vec::new();
    for output in outputs {
        let tokens = tokenize(&output.text);
        let (mut ours, mut plain) = (Times::default(), Times::default());
        for _ in 0..rounds {
            measure_round(&vocabulary, output, &tokens, &mut ours, &mut plain)?;
        }
        for (engine, times) in [("lockstep", &ours), ("llguidance", &plain)] {
            rows.push(summary(&name, output, engine, tokens.len(), times));
        }
        advance();
    }
    Ok(rows)
}

/// Each round compiles anew, so that nothing rests on what an earlier one left behind.
fn measure_round(
    vocabulary: &Arc<GrammarVocabulary>,
    output: &Output,
    tokens: &[TokenId],
    ours: &mut Times,
    plain: &mut Times,
) -> Result<(), String> {
    let vocab_size = vocabulary.vocab_size();
    let compiler = Compiler::new(vocabulary.clone(), GrammarLimits::default());
    let start = Instant::now();
    boundary(&compiler, &output.constraint)?;
    ours.compile.push(micros(start));
    let start = Instant::now();
    let mut second = boundary(&compiler, &output.constraint)?;
    if let Some(&first) = tokens.first() {
        second.consume(first).map_err(|error| error.to_string())?;
    }
    ours.begin.push(micros(start));
    follow(tokens, vocab_size, ours, || {
        boundary(&compiler, &output.constraint)
    })?;
    // What all grammars share is made by the first.
    plain_matcher(&compiler, &output.constraint)?;
    let start = Instant::now();
    let made = plain_matcher(&compiler, &output.constraint)?;
    let took = micros(start);
    plain.compile.push(took);
    plain.begin.push(took);
    let mut made = Some(made);
    follow(tokens, vocab_size, plain, || match made.take() {
        Some(made) => Ok(made),
        None => plain_matcher(&compiler, &output.constraint),
    })
}

fn boundary(compiler: &Compiler, constraint: &Constraint) -> Result<Box<dyn Matcher>, String> {
    let made = compiler
        .matcher(constraint)
        .map_err(|error| error.to_string())?;
    let made = made.ok_or("the constraint holds nothing")?;
    Ok(Box::new(made))
}

fn plain_matcher(compiler: &Compiler, constraint: &Constraint) -> Result<Box<dyn Matcher>, String> {
    let made = compiler
        .plain(constraint)
        .map_err(|error| error.to_string())?;
    let made = made.ok_or("the constraint holds nothing")?;
    Ok(Box::new(made))
}

/// Follows an output once for its rows, and once for each size of window.
fn follow(
    tokens: &[TokenId],
    vocab_size: u32,
    times: &mut Times,
    mut make: impl FnMut() -> Result<Box<dyn Matcher>, String>,
) -> Result<(), String> {
    let mut matcher = make()?;
    let mut mask = Bitmask::none(vocab_size);
    for &token in tokens {
        let start = Instant::now();
        matcher.fill(&mut mask).map_err(|error| error.to_string())?;
        times.row.push(micros(start));
        let start = Instant::now();
        matcher.forced(8);
        times.forced.push(micros(start));
        if !mask.allows(token) {
            return Err(format!("token {token} of an output is not allowed"));
        }
        matcher.consume(token).map_err(|error| error.to_string())?;
    }
    for (idx, &num_drafts) in DRAFTS.iter().enumerate() {
        matcher = make()?;
        for from in 0..tokens.len().saturating_sub(num_drafts) {
            let drafts = &tokens[from..from + num_drafts];
            let start = Instant::now();
            for &draft in drafts {
                matcher.fill(&mut mask).map_err(|error| error.to_string())?;
                matcher.consume(draft).map_err(|error| error.to_string())?;
            }
            matcher.fill(&mut mask).map_err(|error| error.to_string())?;
            matcher.rollback(num_drafts as u32);
            times.window[idx].push(micros(start));
            matcher
                .consume(tokens[from])
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1e3
}

fn summary(
    vocabulary: &str,
    output: &Output,
    engine: &str,
    num_tokens: usize,
    times: &Times,
) -> Value {
    let windows: Vec<Value> = times
        .window
        .iter()
        .zip(DRAFTS)
        .map(|(times, num_drafts)| {
            json!({
                "drafts": num_drafts,
                "p50": median(times),
                "p999": quantile(times, 0.999),
                "max": quantile(times, 1.0),
            })
        })
        .collect();
    json!({
        "vocabulary": vocabulary,
        "output": output.name,
        "engine": engine,
        "tokens": num_tokens,
        "compile_p50": median(&times.compile),
        "begin_p50": median(&times.begin),
        "row_p50": median(&times.row),
        "row_p999": quantile(&times.row, 0.999),
        "row_max": quantile(&times.row, 1.0),
        "forced_p50": median(&times.forced),
        "forced_p999": quantile(&times.forced, 0.999),
        "windows": windows,
    })
}

fn print_table(rows: &[Value]) {
    let paint = Paint::stdout();
    let number = |value: &Value| format!("{:9.1}", value.as_f64().unwrap_or(f64::NAN));
    println!("Microseconds: one row, and k+1 rows with rollback of k drafts.");
    let mut vocabulary = &Value::Null;
    for row in rows {
        if row["vocabulary"] != *vocabulary {
            vocabulary = &row["vocabulary"];
            println!();
            println!("{}", paint.bold(vocabulary.as_str().unwrap_or_default()));
            println!(
                "{:<22} {:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                "output",
                "",
                "compile",
                "begin",
                "row p50",
                "p99.9",
                "max",
                "forced",
                "k=1",
                "k=3",
                "k=7",
                "k=15"
            );
        }
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_string();
        let mut line = format!("{:<22} {:<10}", text("output"), text("engine"));
        for name in [
            "compile_p50",
            "begin_p50",
            "row_p50",
            "row_p999",
            "row_max",
            "forced_p50",
        ] {
            line.push_str(&format!(" {}", number(&row[name])));
        }
        for idx in 0..DRAFTS.len() {
            line.push_str(&format!(" {}", number(&row["windows"][idx]["p50"])));
        }
        println!("{line}");
    }
}
