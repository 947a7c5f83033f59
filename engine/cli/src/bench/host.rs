//! What a benchmark says of the machine it ran on. It must never look at how fast the machine is: that is
//! `machine.rs`.

use serde_json::{Value, json};
use std::{env, fs, thread};

/// The machine, for a report.
pub fn about() -> Value {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    };
    json!({
        "os": env::consts::OS,
        "architecture": env::consts::ARCH,
        "processor": info.lines().find_map(named),
        "num_processors": thread::available_parallelism().map_or(1, |num| num.get()),
    })
}
