//! The built program from outside: processes, pipes, sockets and files, as a user meets them. Nothing here
//! may reach into a crate of the engine.

mod bad_input;
mod battery;
mod bench_scheduler;
mod bench_serve;
mod bisect;
mod captures;
mod chat;
mod commands;
mod compare;
mod constraints;
mod generate;
mod http;
mod hub;
mod law;
mod logits;
mod masks;
mod models;
mod packages;
mod pins;
mod running;
mod scripted;
mod serve;

use serde_json::Value;
use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

/// The program, as cargo built it for these tests.
fn lockstep(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command
        .args(args)
        .env_remove("LOCKSTEP_MODEL")
        .env_remove("LOCKSTEP_API_KEY")
        .env_remove("LOCKSTEP_ADMIN_KEY")
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn run(args: &[&str]) -> Output {
    lockstep(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

fn run_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = lockstep(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A program that ends early closes its end, which is not this function's concern.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8 on standard output")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a command that must succeed printed, as JSON.
fn json(args: &[&str]) -> Value {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

fn root() -> PathBuf {
    let cli = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    cli.ancestors()
        .nth(2)
        .expect("two folders below the root")
        .to_path_buf()
}
