//! What drafters propose. That drafts change no output is a law of the engine, tested there.

use super::*;
use alloc::{string::ToString, vec};

fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
}

fn text(drafts: &[Draft]) -> alloc::string::String {
    drafts
        .iter()
        .map(|draft| draft.token.0 as u8 as char)
        .collect()
}

const BOUNDS: DraftBounds = DraftBounds {
    num_max: 15,
    vocab_size: 256,
    num_running: 1,
};

fn propose(state: &mut DraftState, written: &str, recent: &RecentOutputs) -> Vec<Draft> {
    let tokens = tokens(written);
    let written = Written {
        tokens: &tokens,
        num_output: 0,
        in_flight: None,
        constraint: None,
        recent,
    };
    state.propose(written, BOUNDS)
}

fn live(list: &str) -> DraftState {
    DraftState::new(Drafter::Live(list.parse().expect("drafters")), true)
}

#[test]
fn lists_of_drafters_are_read_and_shown() {
    let read = |text: &str| text.parse::<Speculation>();
    assert_eq!(read("off"), Ok(Speculation::OFF));
    let both = Speculation {
        forced: 7,
        suffix: 0,
        ngram: 8,
        ..Speculation::OFF
    };
    assert_eq!(read("ngram,forced:7"), Ok(both));
    assert_eq!(both.to_string(), "forced:7,ngram:8");
    assert_eq!(read(&both.to_string()), Ok(both));
    assert_eq!(Speculation::OFF.to_string(), "off");
    for bad in [
        "",
        "ngrams",
        "ngram:0",
        "ngram:16",
        "ngram:x",
        "ngram,ngram",
        "off,ngram",
    ] {
        let error = read(bad).expect_err(bad).to_string();
        assert!(error.contains("ngram,forced:7"), "{error}");
    }
}

#[test]
fn suffix_takes_what_is_likely_and_ngram_the_latest() {
    let recent = RecentOutputs::default();
    // `-abc` occurred with 1 after it, and later `abc` alone with 2.
    let written = "x-abc1y abc2z-abc";
    let said = |list: &str| text(&propose(&mut live(list), written, &recent));
    assert_eq!(said("ngram:3"), "2z-");
    assert_eq!(said("suffix:3"), "1y", "longer contexts count for more");
    assert_eq!(said("suffix:3,ngram:3"), "1y");
    let written = "-abc1, -abc1. -abc2; -abc1: -abc";
    let said = |list: &str| text(&propose(&mut live(list), written, &recent));
    assert_eq!(said("suffix:3"), "1", "nothing is likely after that");
    assert_eq!(said("suffix:3,ngram:3"), "1", "and so nothing else guesses");
    let written = "name: one. two. name: one. t";
    assert!(text(&propose(&mut live("suffix:8"), written, &recent)).starts_with("wo"));
    assert_eq!(text(&propose(&mut live("ngram"), "abcd", &recent)), "");
    assert_eq!(
        text(&propose(&mut live("ngram"), "abab", &recent)),
        "aba",
        "on past the end"
    );
    assert_eq!(text(&propose(&mut live("off"), written, &recent)), "");
}

#[test]
fn in_a_crowd_only_what_agrees_is_copied() {
    let mut recent = RecentOutputs::default();
    recent.push(&tokens("abcdefgh"));
    let guess = |num_running, text: &str| {
        let tokens = tokens(text);
        let written = Written {
            tokens: &tokens,
            num_output: 0,
            in_flight: None,
            constraint: None,
            recent: &recent,
        };
        let bounds = DraftBounds {
            num_running,
            ..BOUNDS
        };
        live("suffix").propose(written, bounds).len()
    };
    assert!(guess(1, "abcd") > 0 && guess(CROWD_MIN - 1, "abcd") > 0);
    assert_eq!(guess(CROWD_MIN, "abcd"), 0, "others are not looked at");
    assert!(guess(CROWD_MIN, "abcdefgh, abcd") > 0);
}

#[test]
fn what_others_said_lately_is_proposed_where_it_fits_better() {
    let mut recent = RecentOutputs::default();
    recent.push(&tokens("call: book_table(4)"));
    let drafts = propose(&mut live("suffix:15"), "please; call: bo", &recent);
    assert_eq!(text(&drafts), "ok_", "so much is likely after one output");
    assert!(
        drafts
            .iter()
            .all(|draft| draft.source == DraftSource::Suffix)
    );
    recent.push(&tokens("call: book_table(5)"));
    let drafts = propose(&mut live("suffix:15"), "l: box; call: bo", &recent);
    assert!(
        text(&drafts).starts_with("ok"),
        "longer contexts count for more"
    );
    let speculation = "suffix:15".parse().expect("a drafter");
    let mut salted = DraftState::new(Drafter::Live(speculation), false);
    assert_eq!(text(&propose(&mut salted, "please; call: bo", &recent)), "");
}

#[test]
fn a_sequence_that_guesses_badly_stops_for_a_while() {
    let recent = RecentOutputs::default();
    let mut state = live("ngram:8");
    let written = "abababab";
    for num_guesses in [3, 1] {
        let drafts = propose(&mut state, written, &recent);
        assert_eq!(drafts.len(), num_guesses);
        state.learn(&drafts, 0);
    }
    assert!(propose(&mut state, written, &recent).is_empty());
    let mut num_rests = 1;
    while propose(&mut state, written, &recent).is_empty() {
        num_rests += 1;
        assert!(num_rests < 100);
    }
    assert!(num_rests > 2);
}

#[test]
fn guesses_after_a_wrong_forced_draft_are_not_held_against_guessing() {
    let forced = Draft {
        token: TokenId(1),
        source: DraftSource::Forced,
    };
    let guess = Draft {
        token: TokenId(2),
        source: DraftSource::Ngram,
    };
    let mut state = live("forced,ngram");
    let before = state.pace.clone();
    state.learn(&[forced, guess], 0);
    state.learn(&[forced], 1);
    assert_eq!(state.pace, before);
    state.learn(&[forced, guess, guess], 1);
    assert_ne!(state.pace, before);
}

#[test]
fn drafts_end_at_the_vocabulary_and_at_the_bound() {
    let recent = RecentOutputs::default();
    let mut state = DraftState::new(
        Drafter::Replay {
            output: vec![TokenId(5), TokenId(6), TokenId(300), TokenId(7)],
            depths: vec![9],
        },
        true,
    );
    assert_eq!(propose(&mut state, "a", &recent).len(), 2);
    let tokens = tokens("a");
    let written = Written {
        tokens: &tokens,
        num_output: 1,
        in_flight: None,
        constraint: None,
        recent: &recent,
    };
    let bounds = DraftBounds {
        num_max: 1,
        ..BOUNDS
    };
    assert_eq!(state.propose(written, bounds)[0].token, TokenId(6));
}
