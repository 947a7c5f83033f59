//! The prefix cache: cases one by one, the law with crowds that share beginnings, and an oracle that counts
//! what must be found.

use super::laws::{Coverage, Spec, case, check_law, spec};
use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use lockstep_step::{BLOCK_LEN, StepPlan};
use proptest::prelude::*;

/// A salt, and the tokens of a prefix.
type Prefix = (String, Vec<TokenId>);

/// What an observer knows of a sequence.
struct Watched {
    salt: String,
    tokens: Vec<TokenId>,
    num_prompt_tokens: usize,
    /// Positions that are computed, by what was committed.
    num_computed: usize,
    is_running: bool,
    /// Tokens found at its first admission.
    num_cached: Option<usize>,
    has_ended: bool,
}

/// Keeps every prefix that was ever published, and counts from plans and events alone what each admission
/// must find. Where something was evicted it is an upper bound. It never looks into the engine.
pub(super) struct Oracle {
    has_rows: bool,
    seqs: BTreeMap<SeqId, Watched>,
    blocks: BTreeSet<Prefix>,
    states: BTreeSet<Prefix>,
    events: Vec<Event>,
    num_looked_up: u64,
    num_cached: u64,
    num_recovered: u64,
    pub(super) num_exact_hits: u64,
}

impl Oracle {
    pub(super) fn new(has_rows: bool) -> Oracle {
        Oracle {
            has_rows,
            seqs: BTreeMap::new(),
            blocks: BTreeSet::new(),
            states: BTreeSet::new(),
            events: Vec::new(),
            num_looked_up: 0,
            num_cached: 0,
            num_recovered: 0,
            num_exact_hits: 0,
        }
    }

    pub(super) fn submitted(&mut self, seq: SeqId, salt: &str, prompt: &[u32]) {
        let watched = Watched {
            salt: salt.into(),
            tokens: prompt.iter().map(|&token| TokenId(token)).collect(),
            num_prompt_tokens: prompt.len(),
            num_computed: 0,
            is_running: false,
            num_cached: None,
            has_ended: false,
        };
        self.seqs.insert(seq, watched);
    }

    /// The prompt of a sequence, and what it has said.
    pub(super) fn told(&self, seq: SeqId) -> &[TokenId] {
        &self.seqs[&seq].tokens
    }

    pub(super) fn prompt_len(&self, seq: SeqId) -> usize {
        self.seqs[&seq].num_prompt_tokens
    }

    fn read_events(&mut self, engine: &mut Engine) {
        for event in engine.poll_events() {
            let watched = self.seqs.get_mut(&event.seq).expect("it was submitted");
            match &event.kind {
                EventKind::Preempted => watched.is_running = false,
                EventKind::Token { token, .. } => watched.tokens.push(*token),
                EventKind::Finished(finished) => {
                    watched.has_ended = true;
                    let cached = watched.num_cached.unwrap_or(0);
                    assert_eq!(finished.usage.cached_tokens as usize, cached);
                }
                _ => {}
            }
            self.events.push(event);
        }
    }

    /// The longest beginning that was published, at least one token short of everything.
    fn longest(&self, watched: &Watched) -> usize {
        let full = (watched.tokens.len() - 1) / BLOCK_LEN as usize;
        let lengths = (1..=full).map(|num_blocks| num_blocks * BLOCK_LEN as usize);
        let prefix = |len: usize| (watched.salt.clone(), watched.tokens[..len].to_vec());
        let known = lengths.take_while(|&len| self.blocks.contains(&prefix(len)));
        let usable = known.filter(|&len| !self.has_rows || self.states.contains(&prefix(len)));
        usable.last().unwrap_or(0)
    }

    pub(super) fn planned(&mut self, engine: &mut Engine, plan: &StepPlan) {
        self.read_events(engine);
        let totals = engine.stats().totals;
        let is_exact = totals.num_evicted_blocks + totals.num_evicted_rows == 0;
        for part in &plan.seqs {
            let watched = &self.seqs[&part.seq];
            if watched.is_running {
                continue;
            }
            let (found, longest) = (part.start.0 as usize, self.longest(watched));
            // Nothing is looked up where the cache is off.
            if totals.num_looked_up_tokens == 0 {
                assert_eq!(found, 0);
            } else if is_exact {
                assert_eq!(found, longest, "{:?}", part.seq);
                self.num_exact_hits += u64::from(found > 0);
            } else {
                assert!(found <= longest && found.is_multiple_of(BLOCK_LEN as usize));
            }
            let watched = self.seqs.get_mut(&part.seq).expect("it was submitted");
            watched.is_running = true;
            watched.num_computed = found;
            if watched.num_cached.is_none() {
                watched.num_cached = Some(found);
                self.num_cached += found as u64;
                self.num_looked_up += watched.tokens.len() as u64;
            } else {
                self.num_recovered += found as u64;
            }
        }
    }

    /// Who ended before the commit publishes nothing.
    pub(super) fn before_commit(&mut self, engine: &mut Engine) {
        self.read_events(engine);
    }

    pub(super) fn committed(&mut self, engine: &mut Engine, plan: &StepPlan) {
        let mut before = BTreeMap::new();
        for part in &plan.seqs {
            let watched = &self.seqs[&part.seq];
            before.insert(part.seq, (watched.tokens.len(), watched.has_ended));
        }
        let num_events = self.events.len();
        self.read_events(engine);
        let failed: BTreeSet<SeqId> = self.events[num_events..]
            .iter()
            .filter(|event| match &event.kind {
                EventKind::Finished(finished) => matches!(finished.finish, Finish::Error(_)),
                _ => false,
            })
            .map(|event| event.seq)
            .collect();
        for part in &plan.seqs {
            let (len_before, had_ended) = before[&part.seq];
            let Some(watched) = self.seqs.get_mut(&part.seq) else {
                continue;
            };
            // A part that was planned ahead of a wrong draft is void: it says nothing and leaves nothing.
            if had_ended || part.start.0 as usize != watched.num_computed {
                assert_eq!(watched.tokens.len(), len_before, "{:?}", part.seq);
                continue;
            }
            if failed.contains(&part.seq) {
                continue;
            }
            let num_drawn = watched.tokens.len() - len_before;
            // Of the drafts, those count that were drawn; the last token drawn is not computed.
            let num_drafts = num_drawn.saturating_sub(1);
            let computed = (part.end().0 - part.num_drafts) as usize + num_drafts;
            watched.num_computed = computed;
            let prefix = |len: usize| (watched.salt.clone(), watched.tokens[..len].to_vec());
            for num_blocks in 1..=computed / BLOCK_LEN as usize {
                self.blocks.insert(prefix(num_blocks * BLOCK_LEN as usize));
            }
            for write in &part.rows.writes {
                let len = (part.start.0 + write.query_idx + 1) as usize;
                if len <= computed && len.is_multiple_of(BLOCK_LEN as usize) {
                    self.states.insert(prefix(len));
                }
            }
        }
    }

    /// The engine's own count is the oracle's. Returns all events.
    pub(super) fn finish(&mut self, engine: &mut Engine) -> Vec<Event> {
        self.read_events(engine);
        let totals = engine.stats().totals;
        if totals.num_looked_up_tokens > 0 {
            let counted = (
                totals.num_looked_up_tokens,
                totals.num_cached_tokens,
                totals.num_recovered_tokens,
            );
            let expected = (self.num_looked_up, self.num_cached, self.num_recovered);
            assert_eq!(counted, expected);
        }
        core::mem::take(&mut self.events)
    }
}

/// Tokens that many prompts begin with.
fn stem(id: u32, len: usize) -> Vec<u32> {
    let token = |idx: u32| 1 + (id * 17 + idx * idx * 3 + idx / 7) % (POISON.0 - 1);
    (0..len as u32).map(token).collect()
}

/// Prompts that share beginnings, around multiples of a block, up to 600 tokens and a bit.
fn shared_prompt() -> impl Strategy<Value = Vec<u32>> {
    let cut = (1usize..10, 0usize..3).prop_map(|(blocks, more)| blocks * 64 + more - 1);
    let tail = prop_oneof![2 => Just(0usize), 1 => 1usize..70];
    (0u32..2, cut, 2u32..4, tail).prop_map(|(first, cut, second, tail)| {
        let mut prompt = stem(first, cut.min(600));
        prompt.extend(stem(second, tail));
        prompt
    })
}

fn shared_specs() -> impl Strategy<Value = Vec<Spec>> {
    let salt = prop_oneof![3 => Just(""), 1 => Just("a"), 1 => Just("b")];
    let salted = (spec(shared_prompt()), salt).prop_map(|(mut spec, salt)| {
        spec.salt = salt;
        spec
    });
    prop::collection::vec(salted, 1..6)
}

#[test]
fn crowds_that_share_beginnings_get_what_they_get_alone() {
    let coverage = Coverage::default();
    // Eleven blocks hold the longest sequence.
    let num_blocks = prop_oneof![2 => 11u32..16, 1 => 20u32..40, 2 => Just(400u32)];
    let num_rows = prop_oneof![2 => Just(0u32), 2 => 2u32..12, 3 => Just(600u32)];
    let cases = case(shared_specs(), 1..4, (num_blocks, num_rows), 700);
    check_law(250, &cases, &coverage);
    coverage.check(&[
        ("preemptions", &coverage.preemptions, 20),
        ("accepted drafts", &coverage.accepted, 1000),
        ("aborts in a step", &coverage.aborted_in_step, 5),
        ("whole outputs", &coverage.compared, 200),
        ("cached tokens", &coverage.cached, 10_000),
        ("recovered tokens", &coverage.recovered, 1000),
        ("evicted blocks", &coverage.evicted_blocks, 100),
        ("evicted rows", &coverage.evicted_rows, 100),
        ("exact hits", &coverage.exact_hits, 100),
    ]);
}

/// One engine and model, to which requests come one after another.
struct Bench {
    engine: Engine,
    backend: Fingerprint,
    limits: BackendLimits,
}

impl Bench {
    fn new(num_blocks: u32, num_rows: u32) -> Bench {
        let limits = BackendLimits {
            num_blocks,
            num_rows,
            seq_len_max: 1024,
            ..limits()
        };
        Bench {
            engine: engine(config(), limits),
            backend: model(limits),
            limits,
        }
    }

    /// Runs a request to its end. Returns how many of its tokens were found, and its output.
    fn ask(&mut self, prompt: &[u32], salt: &str, max_tokens: u32) -> (u32, Vec<TokenId>) {
        let mut request = request(1, max_tokens);
        request.prompt = prompt.iter().map(|&token| TokenId(token)).collect();
        request.cache_salt = salt.into();
        let seq = self.engine.submit(Time(0), request).expect("it fits");
        let events = run_to_end(&mut self.engine, &mut self.backend).expect("no invariant breaks");
        self.engine.check_invariants().expect("at the end");
        let Some(EventKind::Finished(finished)) = events.last().map(|event| &event.kind) else {
            panic!("the last event is the end");
        };
        (finished.usage.cached_tokens, tokens(&events, seq))
    }

    fn found(&mut self, prompt: &[u32]) -> u32 {
        self.ask(prompt, "", 1).0
    }
}

#[test]
fn a_prompt_is_found_again_up_to_its_last_full_block_with_a_token_to_spare() {
    for num_rows in [0, 64] {
        for len in [1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 600] {
            let mut bench = Bench::new(64, num_rows);
            let prompt = stem(0, len);
            let (cold, output) = bench.ask(&prompt, "", 70);
            let (warm, again) = bench.ask(&prompt, "", 70);
            let expected = (len as u32 - 1) / 64 * 64;
            assert_eq!((cold, warm), (0, expected), "{len} tokens, {num_rows} rows");
            assert_eq!(again, output);
            let totals = bench.engine.stats().totals;
            assert_eq!(totals.num_looked_up_tokens, 2 * len as u64);
            assert_eq!(totals.num_cached_tokens, u64::from(expected));
            // The next turn of a conversation finds the answer too.
            let answer = output.iter().map(|token| token.0);
            let next: Vec<u32> = prompt.iter().copied().chain(answer).chain([9]).collect();
            // The last token of the answer was drawn and never computed.
            let expected = (next.len() as u32 - 2) / 64 * 64;
            assert_eq!(
                bench.found(&next),
                expected,
                "{len} tokens, {num_rows} rows"
            );
        }
    }
}

#[test]
fn a_prompt_in_chunks_and_one_with_a_single_token_of_output_are_found_too() {
    for num_rows in [0, 64] {
        for chunk_tokens_max in [7, 64, 100, 512] {
            let mut bench = Bench::new(64, num_rows);
            let config = EngineConfig {
                chunk_tokens_max,
                ..config()
            };
            bench.engine = engine(config, bench.limits);
            let prompt = stem(1, 200);
            assert_eq!(bench.found(&prompt), 0);
            assert_eq!(bench.found(&prompt), 192, "chunks of {chunk_tokens_max}");
        }
    }
}

#[test]
fn other_salts_find_nothing() {
    for num_rows in [0, 64] {
        let mut bench = Bench::new(64, num_rows);
        let prompt = stem(0, 300);
        for salt in ["", "a", "b", "ab"] {
            assert_eq!(bench.ask(&prompt, salt, 5).0, 0, "{salt:?}");
        }
        for salt in ["b", "", "ab", "a"] {
            assert_eq!(bench.ask(&prompt, salt, 5).0, 256, "{salt:?}");
        }
        assert_eq!(bench.ask(&prompt, "c", 5).0, 0);
    }
}

#[test]
fn where_prompts_part_a_state_is_left_for_the_third() {
    let prompt = |tail: u32| [stem(0, 200), stem(tail, 250)].concat();
    // Blocks are shared at once. A state is at the end of a prompt; the second request finds out where
    // others went on differently, and leaves one there.
    for (num_rows, expected) in [(0, [0, 192, 192, 448]), (64, [0, 0, 192, 448])] {
        let mut bench = Bench::new(64, num_rows);
        let found = [1, 2, 3, 2].map(|tail| bench.found(&prompt(tail)));
        assert_eq!(found, expected, "{num_rows} rows");
    }
}

#[test]
fn the_least_recently_used_goes_first_and_its_last_block_before_its_first() {
    // Ten blocks. Each prompt of 129 tokens takes three, and two of them are kept.
    let mut bench = Bench::new(10, 0);
    let prompts: Vec<Vec<u32>> = (0..4).map(|id| stem(id, 129)).collect();
    for prompt in &prompts {
        assert_eq!(bench.found(prompt), 0);
    }
    let stats = bench.engine.stats();
    assert_eq!((stats.num_blocks_free, stats.num_blocks_cached), (10, 8));
    assert_eq!(bench.found(&prompts[0]), 128, "and now it is the youngest");
    // Five blocks: two are free, three are the second's two and the third's last.
    assert_eq!(bench.found(&stem(9, 5 * 64 - 1)), 0);
    assert_eq!(bench.engine.stats().totals.num_evicted_blocks, 3);
    let longest = |bench: &Bench, prompt: &[u32]| {
        let tokens: Vec<TokenId> = prompt.iter().map(|&token| TokenId(token)).collect();
        bench.engine.num_findable("", &tokens)
    };
    let found: Vec<usize> = prompts
        .iter()
        .map(|prompt| longest(&bench, prompt))
        .collect();
    assert_eq!(found, [128, 0, 64, 128]);
}

#[test]
fn the_longest_request_needs_not_wait_for_the_cache() {
    for num_rows in [0, 4] {
        let mut bench = Bench::new(16, num_rows);
        for id in 0..8 {
            bench.ask(&stem(id, 200), "", 100);
        }
        let stats = bench.engine.stats();
        assert!(stats.num_blocks_cached > 12, "{stats:?}");
        assert_eq!(stats.num_blocks_free, 16);
        assert_eq!(stats.num_rows_free, num_rows as usize);
        let (found, output) = bench.ask(&stem(20, 1000), "", 24);
        assert_eq!((found, output.len()), (0, 24));
        assert_eq!(bench.engine.stats().totals.num_preemptions, 0);
    }
}

#[test]
fn equal_requests_at_once_end_up_in_the_same_blocks() {
    let mut bench = Bench::new(64, 0);
    let mut request = request(300, 50);
    request.prompt = stem(0, 300).into_iter().map(TokenId).collect();
    for _ in 0..3 {
        let request = Request {
            prompt: request.prompt.clone(),
            end_tokens: vec![],
            stop_strings: vec![],
            tags: plain_tags(),
            sampling: SamplingParams::greedy(),
            matcher: None,
            reasoning: None,
            cache_salt: String::new(),
            ..request
        };
        bench.engine.submit(Time(0), request).expect("it fits");
    }
    run_step(&mut bench.engine, &mut bench.backend, Time(0)).expect("no invariant breaks");
    bench.engine.check_invariants().expect("after a commit");
    // Four full blocks of all three, and the fifth of each.
    let stats = bench.engine.stats();
    assert_eq!(stats.num_blocks - stats.num_blocks_free, 4 + 3);
    let events = run_to_end(&mut bench.engine, &mut bench.backend).expect("no invariant breaks");
    let outputs: Vec<Vec<TokenId>> = (0..3).map(|seq| tokens(&events, SeqId(seq))).collect();
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    assert_eq!(bench.engine.stats().num_blocks_cached, 5);
}

#[test]
fn drafts_leave_the_cache_a_quarter_of_the_rows() {
    let mut bench = Bench::new(64, 16);
    // Each leaves two states, one at the end of its prompt's last full block and one in its answer.
    for id in 0..10 {
        bench.ask(&stem(id, 70), "", 70);
    }
    let num_cached = bench.engine.stats().num_rows_cached;
    assert!(num_cached > 12, "{num_cached} states are few");
    let mut drafting = request(9, 50);
    drafting.sampling.seed = 1;
    let seq = bench.engine.submit(Time(0), drafting).expect("it fits");
    let output = vec![TokenId(8); 60];
    let depths = vec![15];
    bench
        .engine
        .set_drafter(seq, Drafter::Replay { output, depths });
    run_to_end(&mut bench.engine, &mut bench.backend).expect("no invariant breaks");
    let stats = bench.engine.stats();
    // One row is read and one is written, so ten are left for drafts.
    assert!(stats.totals.num_drafts > 300, "{stats:?}");
    assert_eq!(stats.num_rows_cached, 4);
}

#[test]
fn a_request_fits_where_others_hold_what_it_shares() {
    // One takes ten of eleven blocks; a second fits beside it only since they share nine.
    for num_rows in [0, 64] {
        let mut bench = Bench::new(11, num_rows);
        for _ in 0..2 {
            let mut request = request(1, 20);
            request.prompt = stem(0, 600).into_iter().map(TokenId).collect();
            bench.engine.submit(Time(0), request).expect("it fits");
            run_step(&mut bench.engine, &mut bench.backend, Time(0)).expect("no invariant breaks");
            bench.engine.check_invariants().expect("after a commit");
        }
        run_step(&mut bench.engine, &mut bench.backend, Time(0)).expect("no invariant breaks");
        let num_running = bench.engine.stats().num_running;
        assert_eq!(num_running, 2, "{num_rows} rows");
    }
}

#[test]
fn a_preempted_sequence_finds_what_it_published() {
    let limits = BackendLimits {
        num_blocks: 7,
        seq_len_max: 448,
        ..limits()
    };
    for num_rows in [0, 16] {
        let limits = BackendLimits { num_rows, ..limits };
        let (mut engine, mut backend) = (engine(config(), limits), model(limits));
        for id in 0..2 {
            let mut request = request(1, 100);
            request.prompt = stem(id, 190).into_iter().map(TokenId).collect();
            engine.submit(Time(0), request).expect("it fits");
        }
        run_to_end(&mut engine, &mut backend).expect("no invariant breaks");
        let totals = engine.stats().totals;
        assert!(totals.num_preemptions > 0, "{totals:?}");
        assert!(totals.num_recovered_tokens > 0, "{totals:?}");
        assert_eq!(totals.num_cached_tokens, 0, "{totals:?}");
    }
}

#[test]
fn without_the_cache_nothing_is_kept_or_counted() {
    let config = EngineConfig {
        prefix_cache: false,
        ..config()
    };
    let mut bench = Bench::new(64, 16);
    bench.engine = engine(config, bench.limits);
    for _ in 0..2 {
        assert_eq!(bench.found(&stem(0, 300)), 0);
    }
    let stats = bench.engine.stats();
    assert_eq!((stats.num_blocks_cached, stats.num_rows_cached), (0, 0));
    assert_eq!(stats.totals.num_looked_up_tokens, 0);
}
