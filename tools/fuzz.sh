#!/usr/bin/env bash
# Fuzzes one target for some seconds: under libFuzzer, guided by coverage, where a nightly compiler and
# cargo-fuzz are there; with the seeded mutator of lockstep-fuzz otherwise.
#
# usage: tools/fuzz.sh TARGET [SECONDS]      `cargo run --bin lockstep-fuzz -- list` prints the targets
#
# New inputs go to target/fuzz-corpus/TARGET, inputs that fail to fuzz/crashes/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -lt 1 ]; then
    echo "usage: tools/fuzz.sh TARGET [SECONDS]" >&2
    exit 2
fi
target=$1
seconds=${2:-60}

if [ ! -d "fuzz/corpus/$target" ]; then
    echo "there is no target $target: fuzz/corpus has $(ls fuzz/corpus | tr '\n' ' ')" >&2
    exit 2
fi

missing=
rustup toolchain list 2>/dev/null | grep -q '^nightly' || missing="a nightly compiler (rustup toolchain install nightly)"
command -v cargo-fuzz >/dev/null 2>&1 || missing="${missing:+$missing and }cargo-fuzz (cargo install cargo-fuzz --locked)"
if [ -n "$missing" ]; then
    echo "not guided by coverage: $missing is not there" >&2
    exec cargo run --bin lockstep-fuzz -- smoke --seconds "$seconds" --seed "$(date +%s)" "$target"
fi

# The versions of the repository, and what libFuzzer needs beside them.
cp Cargo.lock fuzz/libfuzzer/Cargo.lock
cargo +nightly fuzz build --fuzz-dir fuzz/libfuzzer --target-dir target/fuzz any
mkdir -p "target/fuzz-corpus/$target" "fuzz/crashes/$target"
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
LOCKSTEP_FUZZ_TARGET=$target "target/fuzz/$host/release/any" \
    "target/fuzz-corpus/$target" "fuzz/corpus/$target" \
    -artifact_prefix="fuzz/crashes/$target/" \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=4096
rmdir "fuzz/crashes/$target" 2>/dev/null || true
