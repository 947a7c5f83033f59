//! Masks are the same in every process, whatever was compiled there before.

use crate::outline::{Asked, asked};
use crate::toy::{END, VOCABULARY, mask};
use crate::walker::Walker;
use lockstep_grammar::{Compiler, GrammarLimits};
use lockstep_step::Matcher;
use lockstep_tags::TagFormat;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use sha2::{Digest, Sha256};
use std::process::Command;

/// Tells a process that it is the child; its value is the order to work in.
const CHILD: &str = "LOCKSTEP_MASKS_CHILD";
const LINE: &str = "digest of masks: ";

/// Digests of the masks of fixed walks under fixed constraints.
fn digests(reversed: bool) -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let mut all: Vec<(usize, Asked)> = Vec::new();
    for format in [TagFormat::Glm, TagFormat::QwenXml, TagFormat::HermesJson] {
        for _ in 0..15 {
            let case = asked(format).new_tree(&mut runner).expect("a case");
            all.push((all.len(), case.current()));
        }
    }
    if reversed {
        all.reverse();
    }
    let compiler = Compiler::new(VOCABULARY.clone(), GrammarLimits::default());
    let digest = |(idx, asked): (usize, Asked)| {
        let Ok(Some(mut boundary)) = compiler.matcher(&asked.constraint()) else {
            return (idx, "refused".to_string());
        };
        let mut walker = Walker::new(idx as u64);
        let mut hash = Sha256::new();
        for _ in 0..80 {
            let here = mask(&mut boundary);
            here.words()
                .iter()
                .for_each(|word| hash.update(word.to_le_bytes()));
            let token = walker.choose(&here);
            if token == END {
                break;
            }
            boundary.consume(token).expect("it is in the mask");
        }
        (idx, format!("{:x}", hash.finalize()))
    };
    let mut digests: Vec<(usize, String)> = all.into_iter().map(digest).collect();
    digests.sort();
    digests.into_iter().map(|(_, digest)| digest).collect()
}

#[test]
fn masks_are_equal_across_processes() {
    if let Ok(order) = std::env::var(CHILD) {
        println!("{LINE}{}", digests(order == "reversed").join(" "));
        return;
    }
    let own = digests(false);
    assert!(own.iter().filter(|digest| *digest != "refused").count() > 30);
    let program = std::env::current_exe().expect("the path of this program");
    for order in ["straight", "reversed"] {
        let output = Command::new(&program)
            .args([
                "processes::masks_are_equal_across_processes",
                "--exact",
                "--nocapture",
            ])
            .env(CHILD, order)
            .output()
            .expect("the child ran");
        let said = String::from_utf8_lossy(&output.stdout);
        let line = said
            .split_once(LINE)
            .map(|(_, rest)| rest.lines().next().unwrap_or_default());
        let line = line.unwrap_or_else(|| panic!("no digest in {said:?}"));
        assert_eq!(line.split(' ').collect::<Vec<_>>(), own, "{order}");
    }
}
