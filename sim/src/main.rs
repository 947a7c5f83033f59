//! The simulation's program. It must refuse to run where the simulated world is not compiled in.

#[cfg(not(all(madsim, planted)))]
fn main() -> std::process::ExitCode {
    eprintln!(
        "this build has no simulated world: run `just sim`, or `cargo sim-run`, and export no \
         RUSTFLAGS, which would undo their flags"
    );
    std::process::ExitCode::from(2)
}

#[cfg(all(madsim, planted))]
mod program;

#[cfg(all(madsim, planted))]
fn main() -> std::process::ExitCode {
    program::main()
}
