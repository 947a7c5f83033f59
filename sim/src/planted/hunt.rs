//! The hunt for planted faults: each is switched on in a process of its own, and seeds are tried until one shows it.

use super::{PlantedFault, all};
use crate::oracles::ALL;
use crate::run::{Verdict, try_seed};
use lockstep_step::planted;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A seed takes well under a second. One that takes so long hangs.
const HANGS: Duration = Duration::from_secs(30);

/// Of a hundred faults, those whose stage must be named right.
const RIGHT_PERCENT_MIN: u64 = 95;

/// What came of a hunt.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hunted {
    /// Seeds tried, the one that showed it included.
    seeds: u64,
    /// What noticed it: an oracle, or `panic`, or `hang`. None if nothing did.
    oracle: Option<String>,
    /// The stage that was blamed.
    stage: Option<String>,
    /// Why.
    why: String,
}

/// Hunts all faults, or one, and prints the table. True if each was found.
pub fn table(only: Option<&str>, seeds: u64, processes: usize) -> bool {
    let faults = all();
    let wanted = |fault: &&PlantedFault| only.is_none_or(|only| only == fault.switch.id());
    let faults: Vec<PlantedFault> = faults.iter().filter(wanted).copied().collect();
    if faults.is_empty() {
        println!("there is no planted fault {only:?}");
        return false;
    }
    println!(
        "{:38} {:12} {:>5} {:>7}  {:14} {:12} why",
        "fault", "stage", "seeds", "seconds", "caught by", "blamed"
    );
    let next = Arc::new(Mutex::new(faults.clone().into_iter()));
    let (sender, receiver) = channel();
    for _ in 0..processes.max(1) {
        let (next, sender) = (next.clone(), sender.clone());
        std::thread::spawn(move || {
            loop {
                let fault = next.lock().ok().and_then(|mut faults| faults.next());
                let Some(fault) = fault else {
                    return;
                };
                let begun = Instant::now();
                let hunted = in_a_process(&fault, seeds);
                if sender.send((fault, hunted, begun.elapsed())).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let (mut caught, mut right) = (0, 0);
    for (fault, hunted, took) in receiver {
        let is_caught = hunted.oracle.is_some();
        let is_right = is_caught && hunted.stage.as_deref() == Some(fault.stage.name());
        caught += u64::from(is_caught);
        right += u64::from(is_right);
        println!(
            "{:38} {:12} {:5} {:7.1}  {:14} {:12} {}",
            fault.switch.id(),
            fault.stage.name(),
            hunted.seeds,
            took.as_secs_f64(),
            hunted.oracle.as_deref().unwrap_or("NOT CAUGHT"),
            hunted.stage.as_deref().unwrap_or("-"),
            hunted
                .why
                .chars()
                .take(160)
                .collect::<String>()
                .replace('\n', " "),
        );
        // A table that is read while it grows.
        let _ = std::io::stdout().flush();
    }
    println!(
        "caught {caught} of {}, stage right in {right}",
        faults.len()
    );
    let all = faults.len() as u64;
    caught == all && right * 100 >= all * RIGHT_PERCENT_MIN
}

fn in_a_process(fault: &PlantedFault, seeds: u64) -> Hunted {
    let lost = |why: String| Hunted {
        seeds: 0,
        oracle: None,
        stage: None,
        why,
    };
    let Ok(program) = std::env::current_exe() else {
        return lost("this program has no path".to_owned());
    };
    let hunt = Command::new(program)
        .args(["hunt", fault.switch.id(), "--seeds", &seeds.to_string()])
        .stdout(Stdio::piped())
        .output();
    let output = match hunt {
        Ok(output) => output,
        Err(error) => return lost(error.to_string()),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    // What ends the whole process is noticed by everybody.
    serde_json::from_str(last).unwrap_or_else(|_| Hunted {
        seeds: 1,
        oracle: Some("process".to_owned()),
        stage: None,
        why: format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ),
    })
}

/// Switches a fault on, in this process. False if there is none of this name.
pub fn switch_on(id: &str) -> bool {
    let faults = all();
    let fault = faults.iter().find(|fault| fault.switch.id() == id);
    if fault.is_none() {
        println!("there is no planted fault {id:?}");
    }
    fault
        .map(|fault| planted::set(Some(fault.switch)))
        .is_some()
}

/// Hunts one fault in this process, and prints what came of it as JSON.
pub fn hunt_here(id: &str, seeds: u64) -> bool {
    if !switch_on(id) {
        return false;
    }
    let mut hunted = Hunted {
        seeds,
        oracle: None,
        stage: None,
        why: format!("not seen in {seeds} seeds"),
    };
    for seed in 0..seeds {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            // Whoever waits no longer has seen a hang.
            let _ = sender.send(Box::new(try_seed(seed, ALL)));
        });
        let Ok(verdict) = receiver.recv_timeout(HANGS) else {
            hunted = Hunted {
                seeds: seed + 1,
                oracle: Some("hang".to_owned()),
                stage: Some(crate::verdict::Stage::Liveness.name().to_owned()),
                why: format!("seed {seed} does not end"),
            };
            break;
        };
        if !verdict.is_good() {
            hunted = found(seed, &verdict);
            break;
        }
    }
    let text = serde_json::to_string(&hunted).unwrap_or_default();
    println!("{text}");
    // A thread that hangs is not waited for.
    std::process::exit(0);
}

fn found(seed: u64, verdict: &Verdict) -> Hunted {
    let complaint = verdict.judgement.complaints.first();
    let oracle = match (&verdict.panic, complaint) {
        (Some(_), _) => "panic",
        (_, Some(complaint)) => complaint.oracle,
        _ => "nothing",
    };
    let (stage, why) = verdict.blame.clone().unzip();
    let said = complaint.map(|complaint| complaint.what.clone());
    let said = verdict.panic.clone().or(said).unwrap_or_default();
    Hunted {
        seeds: seed + 1,
        oracle: Some(oracle.to_owned()),
        stage: stage.map(|stage| stage.name().to_owned()),
        why: format!("seed {seed}: {} | {said}", why.unwrap_or_default()),
    }
}
