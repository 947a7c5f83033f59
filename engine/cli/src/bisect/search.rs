//! The search for the smallest set of differences that turns good into bad, as a state machine: it asks for
//! trials and is told verdicts. It must never run anything, and never call a set smallest that it didn't hold
//! against every smaller one.

use std::collections::{BTreeMap, BTreeSet};

/// Differences by number, from 0. The empty set is the good end, the set of all is the bad one.
pub type Subset = BTreeSet<usize>;

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the good end.
    Good,
    /// As the bad end.
    Bad,
    /// The check could not say.
    Unjudged,
}

impl Verdict {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Unjudged => "unjudged",
        }
    }
}

/// Why a trial is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Whether good is good, every time.
    GoodEnd,
    /// Whether bad is bad, every time.
    BadEnd,
    /// To find a set from which nothing can be left out.
    Search,
    /// To see that no smaller set does.
    Smaller,
    /// Whether what was found stays so.
    Again,
}

impl Purpose {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::GoodEnd => "good end",
            Purpose::BadEnd => "bad end",
            Purpose::Search => "search",
            Purpose::Smaller => "smaller",
            Purpose::Again => "again",
        }
    }
}

/// How far the search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Trials of each end, of what is found, and of what is found with one difference less; at least 1.
    pub repeats: usize,
    /// At most so many smaller sets are tried to show that none does.
    pub exhaustive_max: u64,
    /// Whether one trial that could not be judged ends the search. It always does at the ends.
    pub stop_at_unjudged: bool,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This set is to be tried, and its verdict told.
    Try(Subset, Purpose),
    /// It is over.
    Done(Outcome),
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A set that is bad, from which no difference can be left out.
    Found(Found),
    /// The good end is bad, every time; and so is the bad end, or it is good: then they are swapped.
    GoodIsBad {
        /// Whether bad is good as well.
        swapped: bool,
    },
    /// The bad end is good, every time.
    BadIsGood,
    /// The same set was good once and bad another time.
    Unstable(Subset),
    /// The check could not say of a set that must be judged.
    Unjudged(Subset),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The set.
    pub set: Subset,
    /// What is known of smaller sets.
    pub smaller: Smaller,
    /// Differences without which the set could not be judged; without any other one it is good.
    pub unjudged_without: Vec<usize>,
}

/// What is known of smaller sets, of any of the differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Smaller {
    /// All of them are good: the set is smallest.
    AllGood,
    /// All of them were tried: none is bad, and these could not be judged.
    SomeUnjudged(Vec<Subset>),
    /// Too many to try. Those of fewer differences than `below` were tried, and none is bad.
    TooMany {
        /// The size from which on nothing is known.
        below: usize,
        /// Trials that would be needed for all, as `exhaustive_max` counts them.
        needed: u64,
    },
}

/// Why a walk through the search stops.
enum Stop {
    Ask(Subset, Purpose),
    End(Outcome),
}

/// A search. Everything it knows is the verdicts; what comes next is found by walking through it again from
/// the start, so that no verdict can be asked for twice and none be forgotten.
#[derive(Clone, Debug)]
pub struct Search {
    num: usize,
    limits: Limits,
    verdicts: BTreeMap<Subset, Vec<Verdict>>,
}

impl Search {
    /// A search among so many differences.
    ///
    /// # Panics
    /// If there is none, or nothing is to be repeated even once: there would be nothing to find.
    pub fn new(num: usize, limits: Limits) -> Search {
        assert!(num > 0 && limits.repeats > 0, "nothing to search");
        Search {
            num,
            limits,
            verdicts: BTreeMap::new(),
        }
    }

    /// What comes next.
    pub fn step(&self) -> Step {
        match self.walk() {
            Ok(found) => Step::Done(Outcome::Found(found)),
            Err(Stop::Ask(subset, purpose)) => Step::Try(subset, purpose),
            Err(Stop::End(outcome)) => Step::Done(outcome),
        }
    }

    /// Takes the verdict of a set that was tried.
    pub fn tell(&mut self, subset: Subset, verdict: Verdict) {
        self.verdicts.entry(subset).or_default().push(verdict);
    }

    fn walk(&self) -> Result<Found, Stop> {
        self.ends()?;
        let minimal = self.minimal()?;
        let (set, smaller) = self.smaller(minimal)?;
        let unjudged_without = self.confirm(&set)?;
        Ok(Found {
            set,
            smaller,
            unjudged_without,
        })
    }

    fn all(&self) -> Subset {
        (0..self.num).collect()
    }

    /// The verdict of the trial of this number, of a set.
    fn nth(&self, subset: &Subset, idx: usize, purpose: Purpose) -> Result<Verdict, Stop> {
        let told = self.verdicts.get(subset).and_then(|told| told.get(idx));
        told.copied()
            .ok_or_else(|| Stop::Ask(subset.clone(), purpose))
    }

    /// Both ends, as often as they are to be tried, by turns.
    fn ends(&self) -> Result<(), Stop> {
        let (none, all) = (Subset::new(), self.all());
        let mut seen = [(0, 0); 2];
        for idx in 0..self.limits.repeats {
            let ends = [(&none, Purpose::GoodEnd), (&all, Purpose::BadEnd)];
            for ((end, purpose), (num_good, num_bad)) in ends.into_iter().zip(&mut seen) {
                match self.nth(end, idx, purpose)? {
                    Verdict::Good => *num_good += 1,
                    Verdict::Bad => *num_bad += 1,
                    Verdict::Unjudged => return Err(Stop::End(Outcome::Unjudged(end.clone()))),
                }
            }
        }
        let unstable = |(num_good, num_bad): (usize, usize)| num_good > 0 && num_bad > 0;
        let outcome = match seen {
            [good, _] if unstable(good) => Outcome::Unstable(none),
            [_, bad] if unstable(bad) => Outcome::Unstable(all),
            [(0, _), (num_good, _)] => Outcome::GoodIsBad {
                swapped: num_good > 0,
            },
            [_, (_, 0)] => Outcome::BadIsGood,
            _ => return Ok(()),
        };
        Err(Stop::End(outcome))
    }

    /// Whether a set is bad; what can't be judged is not.
    fn is_bad(&self, subset: &Subset, purpose: Purpose) -> Result<bool, Stop> {
        match self.nth(subset, 0, purpose)? {
            Verdict::Unjudged if self.limits.stop_at_unjudged => {
                Err(Stop::End(Outcome::Unjudged(subset.clone())))
            }
            verdict => Ok(verdict == Verdict::Bad),
        }
    }

    /// Delta debugging (ddmin of Zeller and Hildebrandt): a bad set from which no single difference can be
    /// left out.
    fn minimal(&self) -> Result<Subset, Stop> {
        let mut set = self.all();
        let mut num_parts = 2;
        while set.len() > 1 {
            let parts = parts(&set, num_parts);
            let rests: Vec<Subset> = parts.iter().map(|part| &set - part).collect();
            if let Some(part) = self.first_bad(&parts)? {
                (set, num_parts) = (part, 2);
            } else if let Some(rest) = self.first_bad(&rests)? {
                (set, num_parts) = (rest, (num_parts - 1).max(2));
            } else if num_parts == set.len() {
                break;
            } else {
                num_parts = (num_parts * 2).min(set.len());
            }
        }
        Ok(set)
    }

    fn first_bad(&self, subsets: &[Subset]) -> Result<Option<Subset>, Stop> {
        for subset in subsets {
            if self.is_bad(subset, Purpose::Search)? {
                return Ok(Some(subset.clone()));
            }
        }
        Ok(None)
    }

    /// Tries all smaller sets, the smallest first, as far as that is cheap: the first bad one is smallest.
    fn smaller(&self, minimal: Subset) -> Result<(Subset, Smaller), Stop> {
        let mut needed = 0_u64;
        for size in 1..minimal.len() {
            // Sets that were tried already count too, so that the limit means the same at every step.
            needed = needed.saturating_add(choose(self.num, size));
            if needed > self.limits.exhaustive_max {
                let larger = size + 1..minimal.len();
                let more = larger.map(|size| choose(self.num, size));
                let needed = more.fold(needed, u64::saturating_add);
                let below = size;
                return Ok((minimal, Smaller::TooMany { below, needed }));
            }
            let mut indices: Vec<usize> = (0..size).collect();
            loop {
                let subset: Subset = indices.iter().copied().collect();
                if self.is_bad(&subset, Purpose::Smaller)? {
                    return Ok((subset, self.judged_below(size)));
                }
                if !next_combination(&mut indices, self.num) {
                    break;
                }
            }
        }
        let smaller = self.judged_below(minimal.len());
        Ok((minimal, smaller))
    }

    /// What is known where all sets of fewer differences were tried.
    fn judged_below(&self, size: usize) -> Smaller {
        let unjudged = |(subset, told): (&Subset, &Vec<Verdict>)| {
            let is_open = subset.len() < size && told.first() == Some(&Verdict::Unjudged);
            is_open.then(|| subset.clone())
        };
        let unjudged: Vec<Subset> = self.verdicts.iter().filter_map(unjudged).collect();
        match unjudged.is_empty() {
            true => Smaller::AllGood,
            false => Smaller::SomeUnjudged(unjudged),
        }
    }

    /// Tries what was found again, and each set with one difference less: both must stay what they are.
    fn confirm(&self, set: &Subset) -> Result<Vec<usize>, Stop> {
        let mut unjudged_without = Vec::new();
        for idx in 0..self.limits.repeats {
            match self.nth(set, idx, Purpose::Again)? {
                Verdict::Bad => {}
                Verdict::Good => return Err(Stop::End(Outcome::Unstable(set.clone()))),
                Verdict::Unjudged => return Err(Stop::End(Outcome::Unjudged(set.clone()))),
            }
        }
        for left_out in set {
            let mut rest = set.clone();
            rest.remove(left_out);
            for idx in 0..self.limits.repeats {
                match self.nth(&rest, idx, Purpose::Again)? {
                    Verdict::Good => {}
                    Verdict::Bad => return Err(Stop::End(Outcome::Unstable(rest))),
                    Verdict::Unjudged if self.limits.stop_at_unjudged => {
                        return Err(Stop::End(Outcome::Unjudged(rest)));
                    }
                    // Trying it again would hardly say more.
                    Verdict::Unjudged => {
                        unjudged_without.push(*left_out);
                        break;
                    }
                }
            }
        }
        Ok(unjudged_without)
    }
}

/// Cuts a set into so many parts of about the same size, none of them empty.
fn parts(set: &Subset, num_parts: usize) -> Vec<Subset> {
    let items: Vec<usize> = set.iter().copied().collect();
    let bound = |idx: usize| idx * items.len() / num_parts;
    let part = |idx: usize| items[bound(idx)..bound(idx + 1)].iter().copied().collect();
    (0..num_parts).map(part).collect()
}

/// Ways to choose so many of so many; the largest number where there are more.
fn choose(num: usize, size: usize) -> u64 {
    let mut ways = 1_u128;
    for idx in 0..size.min(num - size) {
        ways = ways * (num - idx) as u128 / (idx + 1) as u128;
        if ways > u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    ways as u64
}

/// The next choice of ascending indices below `num`; false after the last.
fn next_combination(indices: &mut [usize], num: usize) -> bool {
    let size = indices.len();
    let Some(at) = (0..size).rev().find(|at| indices[*at] < num - size + at) else {
        return false;
    };
    indices[at] += 1;
    for idx in at + 1..size {
        indices[idx] = indices[idx - 1] + 1;
    }
    true
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
