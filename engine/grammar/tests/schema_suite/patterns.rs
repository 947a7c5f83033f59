//! Random patterns against a plain matcher that walks the tree they were printed from: a grammar takes exactly the
//! strings in which the pattern is found.

use std::cell::Cell;
use std::collections::BTreeSet;

use lockstep_grammar::{SchemaLimits, checked_document};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::random::{Tape, runner};
use crate::recogniser::Recogniser;

#[derive(Clone, Debug)]
enum Tree {
    /// A source and what it matches.
    One(&'static str, Predicate),
    Sequence(Vec<Tree>),
    Either(Vec<Tree>),
    Repeat(Box<Tree>, usize, usize),
    Start,
    End,
}

/// What one character must be.
type Predicate = fn(char) -> bool;

const ONES: &[(&str, Predicate)] = &[
    ("a", |c| c == 'a'),
    ("b", |c| c == 'b'),
    ("\\/", |c| c == '/'),
    ("\\\\", |c| c == '\\'),
    ("\"", |c| c == '"'),
    (".", |c| c != '\n'),
    ("\\d", |c| c.is_ascii_digit()),
    ("\\W", |c| !c.is_ascii_alphanumeric() && c != '_'),
    ("\\s", char::is_whitespace),
    ("[^a]", |c| c != 'a'),
    ("[a-c1]", |c| ('a'..='c').contains(&c) || c == '1'),
    ("[^\\d\\-\\]]", |c| {
        !c.is_ascii_digit() && c != '-' && c != ']'
    }),
    ("\\u65e5", |c| c == '日'),
    ("\\n", |c| c == '\n'),
];

fn tree(tape: &mut Tape, depth: usize) -> Tree {
    let part = |tape: &mut Tape| tree(tape, depth - 1);
    match tape.below(if depth == 0 { 1 } else { 8 }) {
        0 | 1 => {
            let (source, matches) = ONES[tape.below(ONES.len())];
            Tree::One(source, matches)
        }
        2 | 3 => Tree::Sequence((0..=tape.below(3)).map(|_| part(tape)).collect()),
        4 | 5 => Tree::Either((0..=tape.below(2)).map(|_| part(tape)).collect()),
        6 => {
            let (min, more) = (tape.below(2), tape.below(3));
            Tree::Repeat(Box::new(part(tape)), min, min + more)
        }
        _ if tape.chance(5) => Tree::Start,
        _ => Tree::End,
    }
}

fn print(tree: &Tree) -> String {
    let all = |parts: &[Tree]| parts.iter().map(print).collect::<Vec<_>>();
    match tree {
        Tree::One(source, _) => (*source).to_string(),
        Tree::Sequence(parts) => all(parts).concat(),
        Tree::Either(parts) => format!("({})", all(parts).join("|")),
        // The largest count stands for no limit.
        Tree::Repeat(part, 0, 2) => format!("(?:{})*?", print(part)),
        Tree::Repeat(part, 1, 3) => format!("(?:{})+", print(part)),
        Tree::Repeat(part, min, max) => format!("(?:{}){{{min},{max}}}", print(part)),
        Tree::Start => "^".to_string(),
        Tree::End => "$".to_string(),
    }
}

/// Where matches from a place may end.
fn ends(tree: &Tree, text: &[char], from: usize) -> BTreeSet<usize> {
    match tree {
        Tree::One(_, matches) => match text.get(from) {
            Some(c) if matches(*c) => BTreeSet::from([from + 1]),
            _ => BTreeSet::new(),
        },
        Tree::Sequence(parts) => parts.iter().fold(BTreeSet::from([from]), |starts, part| {
            starts
                .iter()
                .flat_map(|start| ends(part, text, *start))
                .collect()
        }),
        Tree::Either(parts) => parts
            .iter()
            .flat_map(|part| ends(part, text, from))
            .collect(),
        Tree::Repeat(part, min, max) => {
            let unlimited = matches!((min, max), (0, 2) | (1, 3));
            let most = if unlimited { text.len() + 1 } else { *max };
            let (mut all, mut now) = (BTreeSet::new(), BTreeSet::from([from]));
            for count in 0..=most {
                if count >= *min {
                    all.extend(now.iter().copied());
                }
                now = now
                    .iter()
                    .flat_map(|start| ends(part, text, *start))
                    .collect();
            }
            all
        }
        Tree::Start if from > 0 => BTreeSet::new(),
        Tree::End if from < text.len() => BTreeSet::new(),
        Tree::Start | Tree::End => BTreeSet::from([from]),
    }
}

#[test]
fn a_grammar_takes_the_strings_in_which_a_pattern_is_found() {
    let [enforced, taken, kept_out] = [const { Cell::new(0_usize) }; 3];
    let count = |cell: &Cell<usize>| cell.set(cell.get() + 1);
    let tapes = proptest::collection::vec(any::<u16>(), 0..200);
    let result = runner(500).run(&tapes, |choices| {
        let mut tape = Tape::new(&choices);
        let tree = tree(&mut tape, 4);
        let source = print(&tree);
        let schema = json!({"type": "string", "pattern": source});
        let Ok(document) = checked_document(&schema, &SchemaLimits::default()) else {
            return Ok(());
        };
        let recogniser = Recogniser::of_document(&document);
        let recogniser =
            recogniser.map_err(|error| TestCaseError::fail(format!("{source}: {error}")))?;
        count(&enforced);
        for _ in 0..24 {
            let length = tape.below(5);
            let letters = [
                'a', 'b', '1', '-', ' ', '/', '日', '\n', '\\', '"', 'c', ']',
            ];
            let text: Vec<char> = (0..length)
                .map(|_| letters[tape.below(letters.len())])
                .collect();
            let is_found = (0..=text.len()).any(|from| !ends(&tree, &text, from).is_empty());
            let spelled = Value::from(text.iter().collect::<String>()).to_string();
            count(if is_found { &taken } else { &kept_out });
            prop_assert_eq!(
                recogniser.accepts(&spelled),
                is_found,
                "{} on {}",
                source,
                spelled
            );
        }
        Ok(())
    });
    let counts = [&enforced, &taken, &kept_out].map(Cell::get);
    println!("enforced, found, not found: {counts:?}");
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(
        counts[0] > 200 && counts[1] > 500 && counts[2] > 500,
        "{counts:?}"
    );
}
