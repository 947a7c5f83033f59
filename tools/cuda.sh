#!/usr/bin/env bash
# Everything that holds the CUDA backend: on the device of this machine where there is one, else on the emulation only,
# and it says which. What the real compiler makes of the kernels is looked at in either case.
#
# usage: tools/cuda.sh [emulation | device]      without a word: device where there is one
set -euo pipefail
cd "$(dirname "$0")/.."

lockstep=${CARGO_TARGET_DIR:-target}/debug/lockstep
what=${1:-auto}
cargo build --locked --bin lockstep

if [ "$what" = auto ]; then
    # Exit code 3 is: there is no such device. Any other failure is one to be looked at.
    status=0
    "$lockstep" generate --backend cuda --max-tokens 1 x >/dev/null 2>&1 || status=$?
    if [ "$status" != 3 ]; then
        what=device
    else
        what=emulation
        echo "no CUDA device can be used here: emulation only, nothing below ran on a device"
    fi
fi

echo "== kernels as the real compiler sees them"
python3 tools/cuda_compile.py

if [ "$what" = device ]; then
    echo "== every test of the backend on the device"
    LOCKSTEP_EMULATION=device cargo test --locked -p lockstep-cuda --lib -- --test-threads 1
    echo "== whole models on the device"
    "$lockstep" selftest --backend cuda --deployments 200
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in memcheck racecheck initcheck; do
            echo "== compute-sanitizer $tool"
            compute-sanitizer --tool "$tool" --error-exitcode 1 \
                "$lockstep" selftest --backend cuda --deployments 2
        done
    else
        echo "compute-sanitizer is not there: it was not run"
    fi
    echo "== figures, by a release build"
    cargo build --locked --release --bin lockstep
    "${CARGO_TARGET_DIR:-target}/release/lockstep" bench cuda
    exit
fi

echo "== the emulation finds what it should"
backends/cuda/emulate/selftest.sh
echo "== every kernel with the address sanitizer"
# All of the workspace, so that what is built is what its other tests were built from.
built=$(cargo test --locked --workspace --lib --no-run 2>&1) || { echo "$built" >&2; exit 1; }
tests=$(sed -n 's/.*(\(.*lockstep_cuda-[^)]*\)).*/\1/p' <<<"$built")
# Leaks are counted by the emulation, per device; those of a test program that ends are none.
LOCKSTEP_EMULATION=asan LD_PRELOAD=$(readlink -f "$(g++ -print-file-name=libasan.so)") \
    ASAN_OPTIONS=detect_leaks=0 "$tests" ops::tests:: --skip planted --skip races |
    tee target/emulate/asan.log
grep -q '^test result: ok. [1-9]' target/emulate/asan.log
echo "== whole models, by the program as it is"
for mode in fast race; do
    backends/cuda/emulate/build.sh $mode target/emulate/$mode
    answer=("$lockstep" generate --chat 'What is 3 plus 4?' --max-tokens 12 --seed 1 --json --digests)
    LD_LIBRARY_PATH=target/emulate/$mode EMULATE_SEED=5 "${answer[@]}" --backend cuda \
        >target/emulate/$mode/cuda.json
    "${answer[@]}" --backend cpu >target/emulate/$mode/cpu.json
    cmp target/emulate/$mode/cuda.json target/emulate/$mode/cpu.json
    echo "$mode: the same bytes as the CPU, digests included"
done
LD_LIBRARY_PATH=target/emulate/fast EMULATE_SEED=5 \
    "$lockstep" selftest --backend cuda --deployments 2 -m llama
echo "== the benchmark runs to its end; its figures are of an emulation and mean nothing"
LD_LIBRARY_PATH=target/emulate/fast EMULATE_SEED=5 "$lockstep" bench cuda --shape tiny --json \
    --batch 1,9 --prompt-tokens 80 --decode-tokens 3 --rounds 1 >target/emulate/bench.json
python3 - target/emulate/bench.json <<'END'
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
assert report["emulated"], "figures of an emulation must say so"
figures = [row[name] for row in report["decode"] for name in ("tokens_per_second", "share_of_copy")]
figures += [row["ratio"] for row in report["exactness"]]
figures += [report["prefill"]["tops"], report["int8_tops"], report["copy_gb_per_second"]]
assert len(figures) == 10 and all(figure > 0 for figure in figures), figures
END
