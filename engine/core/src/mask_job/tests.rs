//! The window of one job against filling one row at a time: every automaton of two states over two tokens,
//! every word of drafts up to length 4, and larger ones at random.

use super::*;
use crate::tests::automaton::Automaton;
use alloc::vec;
use lockstep_step::MatcherError;
use proptest::prelude::*;

const END: TokenId = TokenId(0);

fn job(matcher: impl Matcher + 'static, drafts: &[TokenId], vocab_size: u32) -> MaskJob {
    MaskJob {
        id: MaskJobId {
            step: StepId(3),
            seq: SeqId(5),
        },
        depth: matcher.depth(),
        matcher: Box::new(matcher),
        num_rows: drafts.len() + 1,
        // As the engine does.
        drafts: drafts
            .iter()
            .copied()
            .take_while(|draft| *draft != END)
            .collect(),
        closing: None,
        vocab_size,
    }
}

/// The rows, filled one at a time: each by a matcher of its own that took the drafts before, as a run
/// without drafts would have. The first draft that can't be drawn ends them, and so does an end.
fn one_at_a_time(automaton: &Automaton, drafts: &[TokenId], vocab_size: u32) -> Vec<Bitmask> {
    let mut rows = vec![];
    for idx in 0..=drafts.len() {
        let mut matcher = automaton.clone();
        for &draft in &drafts[..idx] {
            let mut mask = Bitmask::none(vocab_size);
            matcher.fill(&mut mask).expect("it fills");
            if draft == END || !mask.allows(draft) {
                return rows;
            }
            matcher.consume(draft).expect("it was allowed");
        }
        let mut mask = Bitmask::none(vocab_size);
        matcher.fill(&mut mask).expect("it fills");
        rows.push(mask);
    }
    rows
}

/// Runs a job, and compares its rows and its matcher with what one row at a time gives.
fn check(automaton: &Automaton, drafts: &[TokenId], vocab_size: u32) -> usize {
    let done = job(automaton.clone(), drafts, vocab_size).run();
    let expected = one_at_a_time(automaton, drafts, vocab_size);
    let filled = done.filled.expect("it fills");
    assert_eq!(filled.masks, expected, "{automaton:?}, {drafts:?}");
    assert_eq!(filled.num_rolled_back as usize, expected.len() - 1);
    let mut matcher = done.matcher.expect("it is back");
    assert_eq!(matcher.depth(), automaton.depth());
    assert_eq!(matcher.can_finish(), automaton.can_finish());
    let mut mask = Bitmask::none(vocab_size);
    matcher.fill(&mut mask).expect("it fills");
    assert_eq!(mask, expected[0], "it is where it was");
    expected.len()
}

/// All words of length <= 4 over these tokens.
fn words(num_tokens: u32) -> Vec<Vec<TokenId>> {
    let mut words = vec![vec![]];
    let mut from = 0;
    for _ in 0..4 {
        let to = words.len();
        for idx in from..to {
            for token in 0..num_tokens {
                let mut word = words[idx].clone();
                word.push(TokenId(token));
                words.push(word);
            }
        }
        from = to;
    }
    words
}

/// All automata of two states over the tokens 1 and 2: each leads to either state or nowhere.
fn automata() -> Vec<Automaton> {
    let mut automata = vec![];
    for code in 0..3usize.pow(4) * 4 {
        let edge = |state: usize, token: u32| {
            let digit = code / 3usize.pow(state as u32 * 2 + token - 1) % 3;
            (digit < 2).then_some((TokenId(token), digit))
        };
        let edges = |state| (1..3).filter_map(|token| edge(state, token)).collect();
        let accepts = code / 81;
        automata.push(Automaton {
            edges: vec![edges(0), edges(1)],
            accepts: vec![accepts & 1 == 1, accepts & 2 == 2],
            end: END,
            ends: true,
            ..Automaton::default()
        });
    }
    automata
}

#[test]
fn all_small_automata_and_all_drafts_agree_with_one_row_at_a_time() {
    let (words, automata) = (words(3), automata());
    assert_eq!((words.len(), automata.len()), (121, 324));
    let mut by_length = [0; 6];
    let (mut num_ends, mut num_stopped_by_end) = (0, 0);
    for automaton in &automata {
        for drafts in &words {
            let num_rows = check(automaton, drafts, 3);
            by_length[num_rows] += 1;
            num_ends += u32::from(drafts.contains(&END));
            num_stopped_by_end += u32::from(drafts.get(num_rows - 1) == Some(&END));
        }
    }
    assert_eq!(by_length[0], 0, "the first row is always filled");
    assert!(
        by_length[1..].iter().all(|count| *count > 100),
        "{by_length:?}"
    );
    assert!(
        num_ends > num_stopped_by_end && num_stopped_by_end > 100,
        "end tokens stand in windows, and stop them"
    );
}

proptest! {
    #[test]
    fn larger_automata_agree_with_one_row_at_a_time(
        edges in prop::collection::vec(prop::collection::btree_map(1u32..40, 0usize..5, 0..6), 5),
        accepts in prop::collection::vec(any::<bool>(), 5),
        walk in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        num_before in 0usize..6,
        spoil in prop::option::of((0usize..12, 0u32..40)),
    ) {
        let edges = edges.into_iter().map(|edges| {
            edges.into_iter().map(|(token, next)| (TokenId(token), next)).collect()
        });
        let mut automaton = Automaton {
            edges: edges.collect(),
            accepts,
            end: END,
ends: true,
            ..Automaton::default()
        };
        // Drafts that the automaton allows, one of them perhaps replaced.
        let (mut ahead, mut tokens) = (automaton.clone(), vec![]);
        for choice in walk {
            let edges = ahead.edges[ahead.state].clone();
            if edges.is_empty() {
                break;
            }
            let (token, _) = edges[choice.index(edges.len())];
            ahead.consume(token).expect("it is an edge");
            tokens.push(token);
        }
        let mut drafts = tokens.split_off(num_before.min(tokens.len()));
        tokens.into_iter().for_each(|token| automaton.consume(token).expect("it is an edge"));
        if let Some((idx, token)) = spoil && let Some(draft) = drafts.get_mut(idx) {
            *draft = TokenId(token);
        }
        check(&automaton, &drafts, 40);
    }
}

/// `a`, then `a`, then the end.
fn chain() -> Automaton {
    Automaton {
        edges: vec![vec![(TokenId(1), 1)], vec![(TokenId(1), 2)], vec![]],
        accepts: vec![false, false, true],
        end: END,
        ends: true,
        ..Automaton::default()
    }
}

fn masks(job: MaskJob) -> Vec<Vec<u32>> {
    let filled = job.run().filled.expect("it fills");
    let allowed = |mask: &Bitmask| (0..3).filter(|&t| mask.allows(TokenId(t))).collect();
    filled.masks.iter().map(allowed).collect()
}

#[test]
fn an_output_that_ends_in_the_window_leaves_the_rest_empty() {
    // Whether what follows the end is the end, or anything else.
    for after in [END, TokenId(1)] {
        let drafts = [TokenId(1), TokenId(1), END, after];
        assert_eq!(masks(job(chain(), &drafts, 3)), [[1], [1], [0]]);
    }
    let past_the_end = [TokenId(1), TokenId(1), TokenId(1), TokenId(1)];
    assert_eq!(masks(job(chain(), &past_the_end, 3)), [[1], [1], [0]]);
}

#[test]
fn a_forced_closing_narrows_the_first_row_where_the_constraint_allows_it() {
    let mut matcher = chain();
    matcher.edges[0].push((TokenId(2), 0));
    let closing = |token| {
        let mut job = job(matcher.clone(), &[TokenId(1)], 3);
        job.closing = Some(TokenId(token));
        masks(job)
    };
    assert_eq!(
        closing(2),
        [[2]],
        "the draft is another, so nothing follows"
    );
    assert_eq!(closing(1), [[1], [1]]);
    assert_eq!(closing(0), [vec![1, 2], vec![1]], "the constraint wins");
}

#[test]
fn a_failure_further_on_only_ends_the_window() {
    let mut matcher = chain();
    matcher.broken_at = Some(1);
    let ahead = job(matcher.clone(), &[TokenId(1), TokenId(1)], 3).run();
    assert_eq!(ahead.filled.expect("one row").masks.len(), 1);
    assert_eq!(ahead.matcher.expect("it is back").depth(), 0);
    matcher.consume(TokenId(1)).expect("it is an edge");
    let error = job(matcher, &[TokenId(1)], 3).run().filled.err();
    assert_eq!(error.as_deref(), Some("grammar failed: out of fuel"));
}

/// Breaks one duty of a matcher.
struct Careless {
    inner: Automaton,
    rolls_back_less: u32,
    mask_vocab_size: Option<u32>,
}

impl Matcher for Careless {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        if let Some(vocab_size) = self.mask_vocab_size {
            *mask = Bitmask::none(vocab_size);
        }
        self.inner.fill(mask)
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        self.inner.consume(token)
    }

    fn rollback(&mut self, num_tokens: u32) {
        self.inner.rollback(num_tokens - self.rolls_back_less);
    }

    fn depth(&self) -> u32 {
        self.inner.depth()
    }

    fn can_finish(&self) -> bool {
        self.inner.can_finish()
    }
}

#[test]
fn a_matcher_that_breaks_its_duty_is_an_error_with_its_numbers() {
    let careless = |rolls_back_less, mask_vocab_size| Careless {
        inner: chain(),
        rolls_back_less,
        mask_vocab_size,
    };
    let drafts = [TokenId(1), TokenId(1)];
    let mut moved = job(careless(0, None), &drafts, 3);
    moved.depth = 4;
    let cases = [
        (
            job(careless(1, None), &drafts, 3),
            "the matcher is at 1 tokens and not at 0 after 2 tokens were rolled back",
        ),
        (
            moved,
            "the matcher is at 0 tokens and not at 4 before its masks were filled",
        ),
        (
            job(careless(0, Some(7)), &drafts, 3),
            "the matcher wrote a mask of 7 tokens for 3",
        ),
    ];
    for (job, expected) in cases {
        assert_eq!(job.run().filled.err().as_deref(), Some(expected));
    }
}

#[test]
fn jobs_can_be_sent_away() {
    fn is_send<T: Send + 'static>() {}
    is_send::<MaskJob>();
    is_send::<MaskDone>();
}
