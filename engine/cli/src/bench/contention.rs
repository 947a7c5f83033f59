//! Whether somebody else used the processors during a measurement. A figure that was taken beside other
//! work is no figure; this says so next to it. It must never decide whether a measurement counts.

use std::{fs, time::Instant};

/// Share of all processors that others may use in a measurement that is called clean.
const CLEAN_MAX: f64 = 0.03;

/// A measurement's beginning.
pub struct Meter {
    start: Instant,
    busy_ticks: Option<u64>,
    own_ticks: Option<u64>,
}

/// What others used during a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Share of all processors, 0 to 1; none where the system doesn't say.
    pub others: Option<f64>,
}

impl Contention {
    /// One word for a table.
    pub fn verdict(self) -> &'static str {
        match self.others {
            None => "UNKNOWN",
            Some(others) if others <= CLEAN_MAX => "CLEAN",
            Some(_) => "CONTENDED",
        }
    }
}

impl Meter {
    /// Begins.
    pub fn start() -> Meter {
        Meter {
            start: Instant::now(),
            busy_ticks: busy_ticks(),
            own_ticks: own_ticks(),
        }
    }

    /// Ends.
    pub fn stop(&self) -> Contention {
        let others = (|| {
            let busy = busy_ticks()?.checked_sub(self.busy_ticks?)?;
            let own = own_ticks()?.checked_sub(self.own_ticks?)?;
            let all = self.start.elapsed().as_secs_f64() * TICKS_PER_SECOND * num_cpus()? as f64;
            Some((busy.saturating_sub(own) as f64 / all).min(1.0))
        })();
        Contention { others }
    }
}

/// The unit of /proc: fixed in the interface to user space, whatever the kernel ticks at.
const TICKS_PER_SECOND: f64 = 100.0;

/// Ticks that all processors spent on something.
fn busy_ticks() -> Option<u64> {
    parse_busy(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_busy(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))?
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; the guest columns are in user already.
    let idle = fields.get(3)? + fields.get(4)?;
    fields.iter().take(8).sum::<u64>().checked_sub(idle)
}

/// Ticks that this process spent, all threads together.
fn own_ticks() -> Option<u64> {
    parse_own(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn parse_own(stat: &str) -> Option<u64> {
    // The name of the program may hold spaces and brackets; what follows its last bracket may not.
    let after = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn num_cpus() -> Option<usize> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let cpus = stat
        .lines()
        .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    Some(cpus.count()).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle() {
        let stat = "cpu  10 1 5 1000 50 2 3 4 7 0\ncpu0 1 2 3 4\n";
        assert_eq!(parse_busy(stat), Some(10 + 1 + 5 + 2 + 3 + 4));
        assert_eq!(parse_busy("intr 5\n"), None);
    }

    #[test]
    fn own_survives_a_strange_name() {
        let stat = "17 (a b) c) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0";
        assert_eq!(parse_own(stat), Some(30 + 12));
    }

    #[test]
    fn verdicts() {
        let verdict = |others| Contention { others }.verdict();
        assert_eq!(verdict(Some(0.01)), "CLEAN");
        assert_eq!(verdict(Some(0.3)), "CONTENDED");
        assert_eq!(verdict(None), "UNKNOWN");
    }
}
