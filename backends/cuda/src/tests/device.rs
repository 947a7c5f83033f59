//! What becomes of a backend whose device has too little memory, or is lost.

use super::twin::open;
use crate::testing::{is_emulated, open_device, set_seed};
use crate::{CudaBackend, CudaError, CudaOptions, DeviceError};
use lockstep_package::NoProgress;
use lockstep_step::{
    Backend, BackendError, BlockId, MaskSet, Pos, QueryToken, RowPlan, SamplingParams,
    ScoredPosition, SeqId, SeqPlan, StepId, StepOutput, StepPlan, TokenId,
};
use std::process::Command;

fn load(options: &CudaOptions) -> Result<CudaBackend, CudaError> {
    CudaBackend::load(&open_device(), (&open("llama"), None), options, &NoProgress)
}

/// The first tokens of a sequence, of which the last is scored.
fn plan(step: u64) -> StepPlan {
    let query = (1..6).map(|id| QueryToken::Known(TokenId(id)));
    StepPlan {
        step: StepId(step),
        seqs: vec![SeqPlan {
            seq: SeqId(step),
            start: Pos(0),
            query: query.collect(),
            num_drafts: 0,
            block_table: vec![BlockId(0)],
            rows: RowPlan::default(),
            scored: vec![ScoredPosition {
                query_idx: 4,
                mask: None,
            }],
            sampling: SamplingParams::greedy(),
            counts: Vec::new(),
        }],
        num_mask_rows: 0,
    }
}

fn run(backend: &mut CudaBackend, step: u64) -> Result<StepOutput, BackendError> {
    let forward = backend.forward(&plan(step))?;
    backend.sample(forward, &MaskSet::default())
}

#[test]
fn too_little_memory_is_refused_before_anything_runs() {
    let mut options = CudaOptions {
        seq_len_max: Some(256),
        query_tokens_max: 16,
        ..CudaOptions::default()
    };
    let held = load(&options).expect("room enough").memory_table();
    let held: usize = held.iter().map(|(_, bytes)| bytes).sum();
    options.memory_bytes = Some(held);
    load(&options).expect("as much as is needed");
    options.memory_bytes = Some(held - 1);
    match load(&options) {
        Err(CudaError::Device(DeviceError::Memory {
            needed, available, ..
        })) => assert!(needed > available, "{needed} of {available} bytes"),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn the_cache_takes_what_the_budget_leaves() {
    let package = open("llama");
    let mut options = CudaOptions {
        num_blocks: 1 << 20,
        fit_blocks: true,
        seq_len_max: Some(256),
        query_tokens_max: 16,
        ..CudaOptions::default()
    };
    let held = |backend: &CudaBackend| -> usize {
        let table = backend.memory_table();
        table.iter().map(|(_, bytes)| bytes).sum()
    };
    // What a block takes, and all else: with blocks enough for the longest sequence.
    let with = |num_blocks| CudaOptions {
        num_blocks,
        fit_blocks: false,
        ..options.clone()
    };
    let [four, five] = [4, 5].map(|num| held(&load(&with(num)).expect("room enough")));
    let per_block = five - four;
    let rest = four - 4 * per_block;
    let config = &package.config;
    let floats = 2 * config.num_layers * config.num_key_value_heads * config.head_dim * 64;
    assert_eq!(per_block, floats * size_of::<f32>());
    // A thirty-second of the room is kept free.
    for blocks in [31, 62, 310] {
        options.memory_bytes = Some(rest + blocks * per_block * 32 / 31 + 1);
        let mut backend = load(&options).expect("room enough");
        assert_eq!(backend.limits().num_blocks as usize, blocks);
        assert_eq!(held(&backend), rest + blocks * per_block);
        assert_eq!(backend.limits().seq_len_max, 256);
        run(&mut backend, 0).expect("a step in such a cache");
    }
    // No more than asked for, and a sequence is no longer than the cache.
    options.num_blocks = 7;
    assert_eq!(load(&options).expect("room").limits().num_blocks, 7);
    options.num_blocks = 1 << 20;
    options.memory_bytes = Some(rest + per_block * 5 / 2);
    let backend = load(&options).expect("room enough");
    assert_eq!(backend.limits().num_blocks, 2);
    assert_eq!(backend.limits().seq_len_max, 128);
    // And without room for one it says so.
    options.memory_bytes = Some(rest + per_block - 1);
    match load(&options) {
        Err(CudaError::Device(DeviceError::Memory { what, needed, .. })) => {
            assert_eq!(
                (what.as_str(), needed),
                ("a block of the KV cache", per_block)
            );
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn the_cache_pays_for_all_drafters() {
    for (name, draft) in [("qwen3_5", None), ("llama", Some("llama"))] {
        let (package, draft) = (open(name), draft.map(open));
        let options = CudaOptions {
            num_blocks: 1 << 20,
            fit_blocks: true,
            memory_bytes: Some(64 << 20),
            mtp: package.has_mtp(),
            seq_len_max: Some(256),
            query_tokens_max: 16,
            num_rows: 4,
            ..CudaOptions::default()
        };
        let models = (&package, draft.as_ref());
        let backend = CudaBackend::load(&open_device(), models, &options, &NoProgress);
        let table = backend.expect("room enough").memory_table();
        let held: usize = table.iter().map(|(_, bytes)| bytes).sum();
        // All but the reserve and part of a block.
        let left = (64 << 20) - held;
        assert!(
            ((64 << 10)..(64 << 20) / 16).contains(&left),
            "{name}: {left} left"
        );
    }
}

#[test]
fn a_step_that_is_recorded_says_what_it_says_otherwise() {
    let options = |graph_rows| CudaOptions {
        seq_len_max: Some(256),
        query_tokens_max: 16,
        graph_rows,
        ..CudaOptions::default()
    };
    let mut recorded = load(&options(16)).expect("a model");
    let mut plain = load(&options(0)).expect("a model");
    for step in 0..3 {
        assert_eq!(run(&mut recorded, step), run(&mut plain, step));
    }
    assert_eq!((recorded.num_graphs(), plain.num_graphs()), (1, 0));
}

#[test]
fn a_step_on_its_way_is_waited_for_at_the_end() {
    let mut backend = load(&CudaOptions {
        seq_len_max: Some(256),
        query_tokens_max: 16,
        ..CudaOptions::default()
    })
    .expect("a model");
    // Nothing runs on its own under this order.
    set_seed(0);
    let forward = backend.forward(&plan(0)).expect("a step");
    let drawn = backend.draw(forward, &MaskSet::default());
    drop(drawn.expect("its draws"));
    // The emulation ends the process where memory is given up that a copy still names.
    drop(backend);
}

#[test]
fn one_loads_while_another_records() {
    let options = CudaOptions {
        seq_len_max: Some(256),
        query_tokens_max: 16,
        ..CudaOptions::default()
    };
    let all = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| {
            scope.spawn(|| {
                let answers = (0..4).map(|_| {
                    let mut backend = load(&options).expect("a model");
                    run(&mut backend, 0).expect("a step that is recorded")
                });
                answers.collect::<Vec<StepOutput>>()
            })
        });
        threads.map(|thread| thread.join().expect("no panic"))
    });
    let first = &all[0][0];
    assert!(all.iter().flatten().all(|answer| answer == first));
}

#[test]
fn what_was_claimed_is_given_up() {
    // Who else runs in this process holds memory, too.
    let name = "tests::device::a_step_that_is_recorded_says_what_it_says_otherwise";
    if !is_emulated() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", name]).env("EMULATE_STATS", "1");
    let said = child.output().expect("a run of this program");
    let text = String::from_utf8_lossy(&said.stdout);
    let stats = String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("1 passed"), "{text}{stats}");
    let leaks = stats.lines().find(|line| line.contains("leaked"));
    let leaks = leaks.expect("a line that counts leaks");
    assert!(leaks.contains(" 0 bytes leaked"), "{leaks}");
}

/// Set where the device is lost after a while: not for the other tests of one process.
const LOSES: &str = "LOCKSTEP_TEST_LOSES";

#[test]
fn a_lost_device_ends_all_steps_and_says_where() {
    // A real device is not lost for a test.
    if !is_emulated() {
        return;
    }
    if std::env::var_os(LOSES).is_some() {
        return lose();
    }
    let name = "tests::device::a_lost_device_ends_all_steps_and_says_where";
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program);
    child.args(["--exact", name, "--nocapture"]);
    child.env(LOSES, "1").env("EMULATE_LOST_AFTER", "100");
    let said = child.output().expect("a run of this program");
    let text = String::from_utf8_lossy(&said.stdout);
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

fn lose() {
    let mut backend = load(&CudaOptions {
        seq_len_max: Some(256),
        query_tokens_max: 16,
        graph_rows: 0,
        blocking: true,
        ..CudaOptions::default()
    })
    .expect("a model");
    let lost = (0..100).find_map(|step| run(&mut backend, step).err());
    let Some(BackendError::Lost(message)) = &lost else {
        panic!("{lost:?}");
    };
    let (op, rest) = message.split_once(": ").expect("an operation and a cause");
    assert!(rest.starts_with("CUDA_ERROR_ILLEGAL_ADDRESS"), "{message}");
    let files = crate::program::FILES.iter();
    let texts = files.map(|(file, _)| crate::program::program_text(file));
    let is_kernel = texts.into_iter().any(|text| {
        crate::program::symbols(&text)
            .into_iter()
            .any(|symbol| symbol == op)
    });
    assert!(is_kernel, "{message}");
    let again = run(&mut backend, 200);
    assert!(matches!(again, Err(BackendError::Lost(_))), "{again:?}");
}
