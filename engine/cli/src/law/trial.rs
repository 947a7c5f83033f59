//! Runs what was drawn, on several threads: each deployment with its requests, each request plainly, and
//! both compared. The threads change nothing but the time it takes.

use super::{
    axes::{Ask, Axis, Deployment},
    compare::{Difference, difference, difference_before_the_end},
    cover::Group,
    crowd::{self, Member, Outcome, PLAIN_ROOM},
    dice::Dice,
    models::LawModel,
    tally::{Compared, Mismatch, Tally},
    watch::{Sabotage, Watched},
    wish::{NUM_VARIANTS, Wish},
};
use crate::{backend::AnyBackend, exit::Failure};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// A run: its deployment, and its request in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Only {
    group: usize,
    member: usize,
}

impl FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Only, String> {
        let read = text.split_once('.').and_then(|(group, member)| {
            Some(Only {
                group: group.parse().ok()?,
                member: member.parse().ok()?,
            })
        });
        read.ok_or_else(|| "expected the id of a run, such as 17.3".to_owned())
    }
}

/// What there is to run.
pub struct Bench<'a> {
    /// The models.
    pub models: &'a [LawModel],
    /// Their names.
    pub names: &'a [String],
    /// Deployments with their requests.
    pub groups: &'a [Group],
    /// What requests and rooms are drawn from.
    pub seed: u64,
    /// A fault that is put in.
    pub sabotage: Option<Sabotage>,
}

/// A request, as far as what it says is concerned.
type TruthKey = (usize, Ask, u64);

/// What plain runs said; the same request is run once.
#[derive(Default)]
struct Truths(Mutex<BTreeMap<TruthKey, Arc<Outcome>>>);

/// What a thread keeps: a backend for plain runs of each model.
#[derive(Default)]
struct Worker(BTreeMap<usize, Watched<AnyBackend>>);

impl Bench<'_> {
    /// Runs everything, and hands over what came of each deployment, in the order of their numbers.
    pub fn run_all(&self, num_threads: usize, mut on_done: impl FnMut(Tally)) {
        let (truths, next) = (Truths::default(), AtomicUsize::new(0));
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..num_threads {
                let (sender, truths, next) = (sender.clone(), &truths, &next);
                scope.spawn(move || {
                    let mut worker = Worker::default();
                    loop {
                        let idx = next.fetch_add(1, Ordering::Relaxed);
                        let Some(group) = self.groups.get(idx) else {
                            break;
                        };
                        let tally = self.run_group(idx, group, truths, &mut worker);
                        if sender.send((idx, tally)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            let mut early = BTreeMap::new();
            let mut num_done = 0;
            for (idx, tally) in receiver {
                early.insert(idx, tally);
                while let Some(tally) = early.remove(&num_done) {
                    on_done(tally);
                    num_done += 1;
                }
            }
        });
    }

    /// Runs the deployment of one run, and shows what the run said. True if it said the right thing.
    ///
    /// # Errors
    /// If there is no such run.
    pub fn run_only(&self, only: Only) -> Result<bool, Failure> {
        let group = self.groups.get(only.group);
        let Some((group, member)) =
            group.and_then(|group| Some((group, group.members.get(only.member)?)))
        else {
            let what = format!(
                "--only {}.{}: there is no such run",
                only.group, only.member
            );
            return Err(Failure::usage(
                what,
                "give the other flags of the mismatch, too",
            ));
        };
        let (truths, mut worker) = (Truths::default(), Worker::default());
        let deployment = Deployment::new(&group.shared);
        let (ask, variant) = self.ask(only.group, only.member, member);
        let wish = Wish::new(&self.models[deployment.model], ask, variant, self.seed)?;
        println!("{}", self.values(group, member));
        println!("{:#}", wish.body);
        let tally = self.run_group(only.group, group, &truths, &mut worker);
        let id = id(only.group, only.member);
        let found = tally.mismatches.iter().find(|mismatch| mismatch.id == id);
        match found {
            None => println!("1 runs, 0 mismatches"),
            Some(mismatch) => println!("{}\n1 runs, 1 mismatches", mismatch.difference),
        }
        Ok(found.is_none())
    }

    fn run_group(&self, idx: usize, group: &Group, truths: &Truths, worker: &mut Worker) -> Tally {
        let tried = AssertUnwindSafe(|| self.try_group(idx, group, truths, worker));
        let why = match catch_unwind(tried) {
            Ok(Ok(tally)) => return tally,
            Ok(Err(failure)) => failure.what,
            Err(_) => "a panic, in the words on standard error".to_owned(),
        };
        // What is half done is no start for another plain run.
        worker.0.clear();
        let mut tally = Tally::default();
        for (member_idx, member) in group.members.iter().enumerate() {
            tally.num_runs += 1;
            tally.mismatches.push(Mismatch {
                id: id(idx, member_idx),
                values: self.values(group, member),
                difference: Difference::no_end(why.clone()),
            });
        }
        tally
    }

    fn try_group(
        &self,
        idx: usize,
        group: &Group,
        truths: &Truths,
        worker: &mut Worker,
    ) -> Result<Tally, Failure> {
        let deployment = Deployment::new(&group.shared);
        let model = &self.models[deployment.model];
        let mut members = Vec::with_capacity(group.members.len());
        for (member_idx, values) in group.members.iter().enumerate() {
            let (ask, variant) = self.ask(idx, member_idx, values);
            let wish = Arc::new(Wish::new(model, ask, variant, self.seed)?);
            let key = (deployment.model, ask, variant);
            let truth = truths.get(key, || worker.plain(model, deployment.model, &wish))?;
            members.push(Member { wish, truth });
        }
        let mut dice = Dice::new(self.seed, 2 << 32 | idx as u64);
        let room = crowd::room(&deployment, &mut dice);
        let mut backend = Watched::new(model.backend(&room)?, self.sabotage);
        let outcome = crowd::run(model, &deployment, &members, &mut backend, &mut dice)?;
        let mut tally = Tally::default();
        tally.add_crowd(&outcome);
        let num_rounds = outcome.rounds.len();
        for (round, outcomes) in outcome.rounds.iter().enumerate() {
            let is_last = round + 1 == num_rounds;
            for (member_idx, got) in outcomes.iter().enumerate() {
                let values = &group.members[member_idx];
                let found = difference(&members[member_idx].truth, got);
                let all: Vec<u8> = group.shared.iter().chain(values).copied().collect();
                if is_last {
                    tally.add(&Compared {
                        values: &all,
                        outcome: got,
                        drafts: outcome.drafts[member_idx],
                        is_mismatch: found.is_some(),
                    });
                } else {
                    tally.num_warming += 1;
                }
                tally.mismatches.extend(found.map(|difference| Mismatch {
                    id: id(idx, member_idx),
                    values: self.values(group, values),
                    difference,
                }));
            }
        }
        let before_they_went = outcome.cut_short.iter();
        let found =
            before_they_went.filter_map(|got| difference_before_the_end(&members[0].truth, got));
        tally.mismatches.extend(found.map(|difference| Mismatch {
            id: id(idx, 0),
            values: self.values(group, &group.members[0]),
            difference,
        }));
        // A run that differs in both rounds is one run.
        tally.mismatches.sort_by_key(|mismatch| mismatch.id.clone());
        tally
            .mismatches
            .dedup_by_key(|mismatch| mismatch.id.clone());
        Ok(tally)
    }

    fn ask(&self, group: usize, member: usize, values: &[u8]) -> (Ask, u64) {
        let lane = 3 << 32 | (group as u64) << 8 | member as u64;
        let variant = Dice::new(self.seed, lane).word() % NUM_VARIANTS;
        (Ask::new(values), variant)
    }

    fn values(&self, group: &Group, member: &[u8]) -> String {
        let values = group.shared.iter().chain(member);
        let named = Axis::ALL.iter().zip(values).map(|(axis, value)| {
            let names = axis.values(self.names);
            format!("{} {}", axis.name(), names[usize::from(*value)])
        });
        named.collect::<Vec<_>>().join(", ")
    }
}

fn id(group: usize, member: usize) -> String {
    format!("{group}.{member}")
}

impl Truths {
    fn get(
        &self,
        key: TruthKey,
        run: impl FnOnce() -> Result<Outcome, Failure>,
    ) -> Result<Arc<Outcome>, Failure> {
        let known = |truths: &Truths| {
            let all = truths.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(&key).cloned()
        };
        if let Some(truth) = known(self) {
            return Ok(truth);
        }
        // Two threads may both run it: they find the same.
        let truth = Arc::new(run()?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key, Arc::clone(&truth));
        Ok(truth)
    }
}

impl Worker {
    fn plain(&mut self, model: &LawModel, idx: usize, wish: &Wish) -> Result<Outcome, Failure> {
        let backend = match self.0.entry(idx) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => place.insert(Watched::new(model.backend(&PLAIN_ROOM)?, None)),
        };
        crowd::plain(model, wish, backend)
    }
}
