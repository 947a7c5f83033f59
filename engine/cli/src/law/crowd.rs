//! A deployment with its requests, run to their ends; and a request run plainly: alone, in a fresh engine,
//! with nothing kept, nothing drafted, nothing overlapped. It must never compare anything.

use super::{
    axes::{Buffers, Cache, Deployment, DraftKind, Rejected, Scheduling},
    dice::Dice,
    models::{LawModel, QUERY_TOKENS_MAX, Room},
    recording,
    watch::{Counts, SeqDrafts, Watched},
    wish::Wish,
};
use crate::exit::Failure;
use lockstep_core::{
    Drafter, Engine, EngineConfig, Event, EventKind, Host, MaskDone, MaskJob, Pipeline,
    RejectedDrafts, Request, Speculation, Time, Totals,
};
use lockstep_step::{Backend, SeqId, TokenId};
use std::{collections::BTreeMap, sync::Arc};

/// What a reader of a request sees, each with the number of tokens before it.
pub type Outcome = Vec<(u32, EventKind)>;

/// A request, with what it says when it runs plainly.
pub struct Member {
    /// The request.
    pub wish: Arc<Wish>,
    /// What it must say.
    pub truth: Arc<Outcome>,
}

/// What came of a deployment's requests.
pub struct CrowdOutcome {
    /// What each said, a round after the other. Only the last round counts as runs.
    pub rounds: Vec<Vec<Outcome>>,
    /// What the first request said to clients that went away, up to then.
    pub cut_short: Vec<Outcome>,
    /// Drafts of the last round, by request.
    pub drafts: Vec<SeqDrafts>,
    /// Clients that went away.
    pub num_aborted: u64,
    /// Times that overlapping was switched on or off.
    pub num_switched: u64,
    /// What the engine counted.
    pub totals: Totals,
    /// What the backend saw.
    pub counts: Counts,
}

/// Positions of the longest sequence, in blocks: 600 tokens of prompt and 88 of output.
const SEQ_BLOCKS: u32 = 11;

/// Steps after which a deployment that still runs is stuck.
const STEPS_MAX: u64 = 100_000;

/// Room for a single request and no more than it can use.
pub const PLAIN_ROOM: Room = Room {
    num_blocks: 16,
    num_rows: 4,
    num_threads: 1,
    isa_pick: 1,
    is_reference: true,
    static_buffers: false,
    mtp: false,
    draft_pick: None,
};

/// A request alone.
const PLAIN: EngineConfig = EngineConfig {
    max_num_seqs: 1,
    max_num_batched_tokens: QUERY_TOKENS_MAX,
    max_waiting_requests: 1,
    max_waiting_tokens: 1 << 20,
    chunk_tokens_max: QUERY_TOKENS_MAX,
    speculation: Speculation::OFF,
    prefix_cache: false,
    overlap: false,
    rejected_drafts: RejectedDrafts::Trim,
    checked: true,
};

/// Runs a request plainly, in an engine of its own.
///
/// # Errors
/// If the engine can't be made, or stops.
pub fn plain<B: Backend>(
    model: &LawModel,
    wish: &Wish,
    backend: &mut Watched<B>,
) -> Result<Outcome, Failure> {
    let mut crowd = Crowd::new(model, PLAIN, backend)?;
    crowd.submit(0, wish, None)?;
    while crowd.step(&mut Dice::new(0, 0))? {}
    let mut outcomes = crowd.take_outcomes(1);
    Ok(outcomes.pop().unwrap_or_default())
}

/// What a deployment's room is: enough for all, or so little that somebody has to give way.
pub fn room(deployment: &Deployment, dice: &mut Dice) -> Room {
    let (num_seqs, drafter) = (deployment.concurrency, deployment.drafter);
    let is_tight = dice.once_in(2);
    let extra = |dice: &mut Dice, num: u32| dice.below(num as usize + 1) as u32;
    Room {
        num_blocks: match is_tight {
            true => SEQ_BLOCKS + extra(dice, num_seqs + 2),
            false => SEQ_BLOCKS * (num_seqs + 2) + extra(dice, 40),
        },
        num_rows: match is_tight {
            true => 2 * num_seqs + extra(dice, num_seqs.min(6)),
            false => num_seqs * (3 + deployment.depth) + 8 + extra(dice, 24),
        },
        num_threads: if dice.once_in(12) { 2 } else { 1 },
        isa_pick: dice.below(60),
        is_reference: false,
        static_buffers: deployment.buffers == Buffers::On,
        // They also compute along where nobody asks them.
        mtp: matches!(drafter, DraftKind::Mtp | DraftKind::All) || dice.once_in(8),
        draft_pick: (drafter == DraftKind::DraftModel
            || drafter == DraftKind::All && dice.once_in(2))
        .then(|| dice.below(2)),
    }
}

fn config(deployment: &Deployment, has_mtp: bool, dice: &mut Dice) -> EngineConfig {
    EngineConfig {
        max_num_seqs: deployment.concurrency,
        max_num_batched_tokens: dice.pick(&[QUERY_TOKENS_MAX, QUERY_TOKENS_MAX, 256, 96]),
        max_waiting_requests: u32::MAX,
        max_waiting_tokens: u64::MAX,
        chunk_tokens_max: dice.pick(&[QUERY_TOKENS_MAX, 512, 64, 37]),
        speculation: speculation(deployment, has_mtp),
        prefix_cache: deployment.cache != Cache::Off,
        overlap: deployment.scheduling == Scheduling::Overlapped,
        rejected_drafts: match deployment.rejected {
            Rejected::Trim => RejectedDrafts::Trim,
            Rejected::Pad => RejectedDrafts::Pad,
        },
        checked: true,
    }
}

fn speculation(deployment: &Deployment, has_mtp: bool) -> Speculation {
    let depth = deployment.depth;
    let off = Speculation::OFF;
    match deployment.drafter {
        DraftKind::Off | DraftKind::Random | DraftKind::Adversarial => off,
        DraftKind::Forced => Speculation {
            forced: depth,
            ..off
        },
        DraftKind::Suffix => Speculation {
            suffix: depth,
            ..off
        },
        DraftKind::Ngram => Speculation {
            ngram: depth,
            ..off
        },
        DraftKind::Mtp => Speculation { mtp: depth, ..off },
        DraftKind::DraftModel => Speculation {
            draft_model: depth,
            ..off
        },
        DraftKind::All => Speculation {
            forced: depth,
            suffix: depth,
            ngram: depth,
            mtp: if has_mtp { depth } else { 0 },
            draft_model: if has_mtp { 0 } else { depth },
        },
    }
}

/// Runs a deployment's requests to their ends: together, as far as its concurrency goes.
///
/// # Errors
/// If the engine can't be made, or stops.
pub fn run<B: Backend>(
    model: &LawModel,
    deployment: &Deployment,
    members: &[Member],
    backend: &mut Watched<B>,
    dice: &mut Dice,
) -> Result<CrowdOutcome, Failure> {
    backend.pads(deployment.buffers == Buffers::On);
    let mut config = config(deployment, model.has_mtp(), dice);
    let wanted = config.speculation;
    // Each request may say itself who drafts for it, whatever the engine would do.
    let says_itself = dice.once_in(2);
    if says_itself {
        config.speculation = EngineConfig::default().speculation;
    }
    let mut crowd = Crowd::new(model, config, backend)?;
    crowd.speculation = says_itself.then_some(wanted);
    crowd.switches = deployment.scheduling == Scheduling::Switching;
    let num_rounds = match deployment.cache {
        Cache::Warm => 2,
        Cache::Cold | Cache::Off => 1,
    };
    let (mut rounds, mut cut_short) = (Vec::new(), Vec::new());
    let mut drafts = Vec::new();
    for _ in 0..num_rounds {
        crowd.run_round(deployment, members, dice)?;
        drafts = crowd.drafts(members.len());
        let mut outcomes = crowd.take_outcomes(members.len() + 1);
        cut_short.extend(outcomes.pop());
        rounds.push(outcomes);
    }
    let stats = crowd.engine.stats();
    if (stats.num_blocks_free, stats.num_rows_free) != (stats.num_blocks, stats.num_rows) {
        let what = format!(
            "{} of {} blocks and {} of {} rows came back",
            stats.num_blocks_free, stats.num_blocks, stats.num_rows_free, stats.num_rows
        );
        return Err(Failure::failed(what));
    }
    Ok(CrowdOutcome {
        rounds,
        cut_short,
        drafts,
        num_aborted: crowd.num_aborted,
        num_switched: crowd.num_switched,
        totals: stats.totals,
        counts: crowd.backend.counts,
    })
}

/// An engine, its backend, and whose sequences run in it.
struct Crowd<'a, B: Backend> {
    model: &'a LawModel,
    engine: Engine,
    backend: &'a mut Watched<B>,
    pipeline: Pipeline<Watched<B>>,
    /// Whether overlapping is switched on and off between steps.
    switches: bool,
    /// What each request says about who drafts.
    speculation: Option<Speculation>,
    /// By sequence, the index of its request; one that is there to leave has the index after the last.
    ids: BTreeMap<SeqId, usize>,
    events: Vec<(SeqId, u32, EventKind)>,
    num_steps: u64,
    num_aborted: u64,
    num_switched: u64,
}

impl<'a, B: Backend> Crowd<'a, B> {
    fn new(
        model: &'a LawModel,
        config: EngineConfig,
        backend: &'a mut Watched<B>,
    ) -> Result<Crowd<'a, B>, Failure> {
        backend.restart();
        let vocabulary = Arc::clone(&model.vocabulary);
        let engine = Engine::new(config, backend.limits(), vocabulary);
        Ok(Crowd {
            model,
            engine: engine.map_err(Failure::failed)?,
            backend,
            pipeline: Pipeline::default(),
            switches: false,
            speculation: None,
            ids: BTreeMap::new(),
            events: Vec::new(),
            num_steps: 0,
            num_aborted: 0,
            num_switched: 0,
        })
    }

    fn now(&self) -> Time {
        Time(self.num_steps)
    }

    fn submit(
        &mut self,
        idx: usize,
        wish: &Wish,
        drafter: Option<Drafter>,
    ) -> Result<SeqId, Failure> {
        let request = Request {
            speculation: self.speculation,
            ..wish.request(self.model)?
        };
        let id = self.engine.submit(self.now(), request);
        let id = id.map_err(Failure::failed)?;
        if let Some(drafter) = drafter {
            self.engine.set_drafter(id, drafter);
        }
        self.ids.insert(id, idx);
        Ok(id)
    }

    /// Submits every request, all at once or one after the other, and runs them to their ends.
    fn run_round(
        &mut self,
        deployment: &Deployment,
        members: &[Member],
        dice: &mut Dice,
    ) -> Result<(), Failure> {
        let spread = dice.pick(&[1, 1, 8]);
        let mut arrivals: Vec<usize> = members.iter().map(|_| dice.below(spread)).collect();
        arrivals.sort_unstable();
        // A client that goes away, in the middle of the crowd.
        let leaves = dice.once_in(3).then(|| 1 + dice.below(20));
        let mut guest = None;
        let mut turn = 0;
        loop {
            for (idx, member) in members.iter().enumerate() {
                if arrivals[idx] == turn {
                    let drafter = self.drafter(deployment, member, dice);
                    self.submit(idx, &member.wish, drafter)?;
                }
            }
            if turn == 0 && leaves.is_some() {
                guest = Some(self.submit(members.len(), &members[0].wish, None)?);
            }
            if let Some(guest) = guest.filter(|_| leaves == Some(turn)) {
                self.num_aborted += u64::from(self.engine.abort(guest));
            }
            turn += 1;
            let worked = self.step(dice)?;
            let all_came = arrivals.last().is_none_or(|last| *last < turn);
            if !worked && all_came {
                break;
            }
        }
        Ok(())
    }

    fn drafter(
        &self,
        deployment: &Deployment,
        member: &Member,
        dice: &mut Dice,
    ) -> Option<Drafter> {
        let truth: Vec<TokenId> = tokens(&member.truth).collect();
        let depth = deployment.depth;
        match deployment.drafter {
            DraftKind::Random => Some(recording::random(&truth, depth, dice)),
            DraftKind::Adversarial => {
                let prompt_len = member.wish.prompt_len();
                let model = self.model;
                Some(recording::adversarial(
                    model, &truth, prompt_len, depth, dice,
                ))
            }
            DraftKind::Off
            | DraftKind::Forced
            | DraftKind::Suffix
            | DraftKind::Ngram
            | DraftKind::Mtp
            | DraftKind::DraftModel
            | DraftKind::All => None,
        }
    }

    /// Runs a step to its end, and starts the next where they overlap. False if there was none to run.
    fn step(&mut self, dice: &mut Dice) -> Result<bool, Failure> {
        if self.switches && dice.once_in(3) {
            self.engine.set_overlap(!self.engine.is_overlapped());
            self.num_switched += u64::from(self.engine.has_work());
        }
        let mut host = LawHost {
            now: self.now(),
            backwards: dice.once_in(2),
        };
        let (engine, backend) = (&mut self.engine, &mut *self.backend);
        let worked = self.pipeline.turn(engine, backend, &mut host);
        let worked = worked.map_err(|fault| Failure::failed(fault.to_string()))?;
        if !worked && self.engine.has_work() {
            return Err(Failure::failed("sequences wait, and no step is planned"));
        }
        self.num_steps += 1;
        if self.num_steps > STEPS_MAX {
            return Err(Failure::failed(format!("no end after {STEPS_MAX} steps")));
        }
        let events = self.engine.poll_events().into_iter();
        self.events
            .extend(events.map(|Event { seq, at, kind }| (seq, at, kind)));
        Ok(worked)
    }

    /// The drafts of each request of this round.
    fn drafts(&self, num: usize) -> Vec<SeqDrafts> {
        let mut drafts = vec![SeqDrafts::default(); num];
        for (seq, idx) in &self.ids {
            let own = self.backend.drafts.get(seq);
            if let (Some(place), Some(own)) = (drafts.get_mut(*idx), own) {
                *place = *own;
            }
        }
        drafts
    }

    /// What was said, by request, without what may depend on company.
    fn take_outcomes(&mut self, num: usize) -> Vec<Outcome> {
        let mut outcomes = vec![Vec::new(); num];
        for (seq, at, mut kind) in self.events.drain(..) {
            // How much was found is the one number that what ran before may change.
            if let EventKind::Finished(finished) = &mut kind {
                finished.usage.cached_tokens = 0;
            }
            let is_news = !matches!(kind, EventKind::Scheduled | EventKind::Preempted);
            if let Some(idx) = self.ids.get(&seq)
                && is_news
            {
                outcomes[*idx].push((at, kind));
            }
        }
        self.ids.clear();
        outcomes
    }
}

/// Fills masks in the order of the plan, or in the other one.
struct LawHost {
    now: Time,
    backwards: bool,
}

impl Host for LawHost {
    type Pending = Vec<MaskJob>;

    fn now(&self) -> Time {
        self.now
    }

    fn start_masks(&mut self, mut jobs: Vec<MaskJob>) -> Vec<MaskJob> {
        if self.backwards {
            jobs.reverse();
        }
        jobs
    }

    fn finish_masks(&mut self, pending: Vec<MaskJob>) -> Vec<MaskDone> {
        pending.into_iter().map(MaskJob::run).collect()
    }
}

/// The tokens of an outcome.
pub fn tokens(outcome: &Outcome) -> impl Iterator<Item = TokenId> + '_ {
    outcome.iter().filter_map(|(_, kind)| match kind {
        EventKind::Token { token, .. } => Some(*token),
        _ => None,
    })
}
