//! Looking ahead leaves no trace: a matcher that took any legal tokens and gave them back, or was asked what is
//! forced, says the same as its twin that did not.

use crate::outline::asked;
use crate::toy::{END, VOCABULARY, mask, text};
use crate::walker::Walker;
use lockstep_grammar::{Compiler, GrammarLimits};
use lockstep_step::Matcher;
use lockstep_tags::TagFormat;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Constraints, and tokens that are looked at under each.
const NUM_CONSTRAINTS: usize = 60;
const NUM_TOKENS: usize = 120;

fn looking_ahead_leaves_no_trace(format: TagFormat) {
    let compiler = Compiler::new(VOCABULARY.clone(), GrammarLimits::default());
    let mut runner = TestRunner::deterministic();
    let (mut num_forced, mut num_ahead, mut num_walked) = (0, 0, 0);
    for seed in 0..NUM_CONSTRAINTS {
        let asked = asked(format).new_tree(&mut runner).expect("a case");
        let constraint = asked.current().constraint();
        let twins = [(); 2].map(|()| compiler.matcher(&constraint));
        let [Ok(Some(mut still)), Ok(Some(mut jumpy))] = twins else {
            continue;
        };
        num_walked += 1;
        let mut walker = Walker::new(seed as u64);
        for depth in 0..NUM_TOKENS as u32 {
            let here = mask(&mut still);
            let forced = match walker.one_in(2) {
                true => jumpy.forced(16),
                false => Vec::new(),
            };
            // What is forced may be taken, and nothing else may come first but another cut of the same text.
            for &token in &forced {
                assert!(mask(&mut jumpy).allows(token), "{:?}", text(token));
                jumpy.consume(token).expect("it is in the mask");
            }
            jumpy.rollback(forced.len() as u32);
            num_forced += forced.len();
            let num = walker.below(7);
            for ahead in 0..num {
                let mask = mask(&mut jumpy);
                walker.forget();
                let token = walker.choose(&mask);
                if token == END {
                    jumpy.rollback(ahead as u32);
                    break;
                }
                jumpy.consume(token).expect("it is in the mask");
                num_ahead += 1;
                if ahead + 1 == num {
                    jumpy.rollback(num as u32);
                }
            }
            assert_eq!(jumpy.depth(), depth);
            assert_eq!(mask(&mut jumpy), here);
            assert_eq!(jumpy.can_finish(), still.can_finish());
            assert_eq!(jumpy.forced(8), still.forced(8));
            walker.forget();
            let token = walker.choose(&here);
            if token == END {
                break;
            }
            still.consume(token).expect("it is in the mask");
            jumpy.consume(token).expect("it is in the mask");
        }
    }
    println!("{format}: {num_walked} walks, {num_ahead} tokens ahead, {num_forced} forced");
    assert!(num_walked > NUM_CONSTRAINTS / 2 && num_ahead > 1_000 && num_forced > 200);
}

#[test]
fn looking_ahead_in_glm_leaves_no_trace() {
    looking_ahead_leaves_no_trace(TagFormat::Glm);
}

#[test]
fn looking_ahead_in_qwen_xml_leaves_no_trace() {
    looking_ahead_leaves_no_trace(TagFormat::QwenXml);
}

#[test]
fn looking_ahead_in_hermes_json_leaves_no_trace() {
    looking_ahead_leaves_no_trace(TagFormat::HermesJson);
}
