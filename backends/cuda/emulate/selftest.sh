#!/bin/bash
# Tests the emulator itself with small kernels of its own: that it refuses what is undefined on a
# device, that faults planted in kernels and in their callers are found in the modes that should
# find them, and that what is right passes in all modes. Prints `ok NAME` or `FAIL NAME` a case.
#
#   selftest.sh [OUT_DIR]
set -uo pipefail

HERE=$(cd "$(dirname "$0")" && pwd)
OUT=${1:-$HERE/../../../target/emulate/selftest}
export KERNELS=$HERE/selftest/kernels
CXX=${CXX:-g++}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)

for mode in fast race asan; do
  if [ $mode = race ] && [ ! -e "$OUT/race" ]; then
    # The driver and the runtime are the same in both.
    mkdir -p "$OUT/race/objects"
    cp "$OUT"/fast/objects/{driver,runtime}_*.o* "$OUT/race/objects/"
  fi
  "$HERE/build.sh" $mode "$OUT/$mode" || exit 1
  # The same program serves both builds that have no sanitizer.
  flags=()
  [ $mode = asan ] && flags=(-fsanitize=address)
  wanted=$(cat "$HERE"/selftest/*.{cpp,h} "$HERE/driver/cuda_api.h" | sha256sum)
  [ "$(cat "$OUT/$mode/main.key" 2>/dev/null)" = "$wanted" ] && continue
  if [ $mode = race ]; then
    cp "$OUT/fast/main" "$OUT/race/main"
    echo "$wanted" >"$OUT/race/main.key"
    continue
  fi
  "$CXX" -std=c++17 -O1 -Wall -Wextra "${flags[@]}" "$HERE"/selftest/*.cpp \
    "$OUT/$mode/libcuda.so.1" -lpthread "-Wl,-rpath,\$ORIGIN" -o "$OUT/$mode/main" || exit 1
  echo "$wanted" >"$OUT/$mode/main.key"
done

export EMULATE_ANY_SOURCE=1
export ASAN_OPTIONS=detect_leaks=0:exitcode=78
TOTAL=0
GOOD=0
# tell NAME HOLDS EXPLANATION
tell() {
  TOTAL=$((TOTAL + 1))
  if [ "$2" = 1 ]; then
    GOOD=$((GOOD + 1))
    echo "ok $1"
  else
    echo "FAIL $1"
    sed 's/^/  /' <<<"$3"
  fi
}

# Runs a case and sets `output` and `status`.
run() {
  local mode=$1
  shift
  output=$("$OUT/$mode/main" "$@" 2>&1)
  status=$?
}

# passes MODE CASE [WORDS]: the case holds.
passes() {
  run "$@"
  tell "$*" "$([ $status = 0 ] && echo 1)" "status $status: $output"
}

# found MODE STATUS PATTERN CASE [WORDS]: the process ends so, with a line that matches.
found() {
  local mode=$1 wanted=$2 pattern=$3
  shift 3
  run "$mode" "$@"
  local holds=0
  [ $status = "$wanted" ] && grep -Eq "$pattern" <<<"$output" && holds=1
  tell "$mode $*" $holds "expected status $wanted and /$pattern/, got $status: $output"
}

# differs MODE LEAST FIRST LAST CASE FAULT: at least so many of these seeds give a wrong result.
differs() {
  local mode=$1 least=$2 first=$3 last=$4 case=(fault "$5" "$6")
  [ "$5" = products ] && case=(products "$6")
  run "$mode" "${case[@]}" "$first" "$last"
  local wrong=${output%% seeds wrong*}
  wrong=${wrong##*$'\n'}
  local holds=0
  if [ $status = 0 ] && [[ $wrong =~ ^[0-9]+$ ]]; then
    if [ "$least" = none ]; then
      [ "$wrong" = 0 ] && holds=1
    elif [ "$wrong" -ge "$least" ]; then
      holds=1
    fi
  fi
  tell "$mode $5 $6 over seeds $first-$last" $holds "expected $least wrong, got $status: $output"
}

# 1. What the device leaves undefined is refused, with its place.
AT='^EMULATE: kernel [a-z_]+ block \(0,0,0\) thread \([0-9]+,0,0\): [a-z_]+\.cu:[0-9]+'
misused() { found "$1" 77 "$AT: .*$3" misuse "$2" "${4:-}"; }
for seed in 0 1 6 7; do
  misused fast ended_at_barrier "has ended while others wait" $seed
  misused fast two_barriers "divergent __syncthreads" $seed
  misused fast shuffle_not_in_mask "not in mask" $seed
  misused fast mixed_collectives "diverges" $seed
  misused fast barrier_against_warp "deadlock" $seed
  misused fast copy_never_waited "not waited for" $seed
done
misused fast shuffle_with_ended "has ended"
found fast 77 '^EMULATE: kernel .*reads lane 16, which is not in mask' misuse shuffle_from_outside
misused fast copy_misaligned "not aligned"
misused fast mma_of_half_a_warp "mma by a warp of 16 lanes"
misused fast odd_width "no power of two"
misused fast trap "__trap"

# 2. Bounds and alignment, in the modes that see them. 77 is the emulator's own status.
IN='^EMULATE: kernel [a-z_]+ block \([0-9]+,0,0\) thread \([0-9]+,0,0\): '
for mode in fast race asan; do
  found $mode 77 "${IN}misuse\.[a-z.]+:[0-9]+: .*out of bounds" misuse far_outside
  passes $mode fault template_shared 0 0 9
done
found race 77 "${IN}misuse\.cu:[0-9]+: writes 4 bytes .*out of bounds" slack_at_free
found asan 77 "${IN}a sanitizer" slack_at_free
found fast 77 "bytes next to the device allocation .* overwritten" slack_at_free
found race 77 "${IN}misuse\.cu:[0-9]+: index 64 is out" misuse past_end_of_shared
found asan 77 "${IN}a sanitizer" misuse past_end_of_shared
found race 77 "${IN}misuse\.cu:[0-9]+: reads 4 bytes .*out of bounds" misuse past_end_of_dynamic
found asan 77 "${IN}a sanitizer" misuse past_end_of_dynamic
found race 77 "${IN}misuse\.cu:[0-9]+: .* misaligned" misuse misaligned_load
found asan 77 "${IN}a sanitizer" misuse misaligned_load
for case in overflows casts_too_big; do found asan 77 "${IN}a sanitizer" misuse $case; done
found race 77 "unwritten: kernel .* at misuse\.cu:[0-9]+" misuse reads_unwritten

# 3. Planted faults. What is right is right under all seeds and in all modes; each fault is found by
# the race checker in one run whatever the seed, and in the plain build by seeds, but not by all.
for kernel in tree_sum rotate_warp histogram double_buffer template_shared between_blocks; do
  for mode in fast race asan; do differs $mode none 0 19 $kernel 0; done
done
race='race: kernel [a-z_]+ block .* of (shared|global) memory at faults\.cu:[0-9]+; the other: '
race+='block [0-9]+ thread [0-9]+ at faults\.cu:[0-9]+'
for seed in 0 1 2 3; do
  found race 77 "$race" fault tree_sum 1 $seed $seed
  found race 77 "$race" fault rotate_warp 1 $seed $seed
  found race 77 "$race" fault histogram 1 $seed $seed
  found race 77 "$race" fault between_blocks 1 $seed $seed
  for fault in 1 2 3; do found race 77 "$race" fault double_buffer $fault $seed $seed; done
  found race 77 "unwritten: " fault template_shared 1 $seed $seed
done
differs fast none 1 1 tree_sum 1
differs fast 15 2 19 tree_sum 1
differs fast 15 2 19 rotate_warp 1
differs fast none 0 0 double_buffer 1
differs fast 15 2 19 double_buffer 1
differs fast none 1 1 double_buffer 2
differs fast 15 2 19 double_buffer 2
differs fast 15 2 19 double_buffer 3
differs fast 15 2 19 template_shared 1
differs fast none 0 0 between_blocks 1
differs fast 12 2 19 between_blocks 1
# No order of whole steps shows this one: only the race checker can.
differs fast none 0 19 histogram 1

# Products of warpgroups: what the device leaves undefined is refused at once, whatever the seed.
for mode in fast race asan; do differs $mode none 0 19 products 0; done
PRODUCT='^EMULATE: kernel product_tiles block \(0,0,0\) thread .*'
for seed in 0 1 2 3; do
  wrong() { found fast 77 "$PRODUCT$2" products "$1" $seed $seed ${3:-}; }
  wrong 1 "products\.cu:[0-9]+: wgmma without a wgmma.fence"
  wrong 2 "overwrites what a wgmma of warp [0-9] \(products\.cu:[0-9]+\) may still read"
  wrong 3 "reads what thread [0-9]+ has copied \(products\.cu:[0-9]+\) and not fenced"
  wrong 4 "overwrites what a wgmma of warp [0-9] \(products\.cu:[0-9]+\) may still read"
  wrong 6 "it goes beyond shared memory"
  wrong 7 "swizzling is not emulated"
  wrong 8 "the warps of a warpgroup do not ask for the same"
  wrong 9 "(overwrites what a wgmma|thread ends with [0-9] wgmma not waited for)"
  wrong 12 "has copied .* and not waited for"
  wrong 13 "bits are set that have no meaning"
  wrong 0 "warpgroup that is not whole" 96
  found race 77 "race: kernel product_tiles" products 11 $seed $seed
done
found fast 77 "$PRODUCT.*has written accumulator 3 of a wgmma" products 10 0 0
differs fast 1 1 1 products 10
differs fast 20 0 19 products 5

# 4. Instructions.
for case in mma_fragments warp_values arithmetic halves atomics dynamic_shared; do
  for mode in fast race asan; do passes $mode $case; done
done

# 5. Streams: with the wait always right, without it wrong under some seed of 0..19.
for case in wait_for_other_stream read_after_copy reuse_of_source legacy_stream allocated_elsewhere
do
  passes fast $case
  passes race $case
  passes fast $case faulty
done
passes fast polling
passes fast pageable
found fast 77 "cuMemFreeHost of .* still queued" pinned_freed_too_early

# 6. Graphs.
for mode in fast asan; do
  passes $mode replay
  passes $mode fork
done
passes fast fork no_join
passes fast fork no_order
passes fast change_parameters
for mode in fast race asan; do
  found $mode 77 "${IN}plain\.[a-z.]+:[0-9]+: .*out of bounds" freed_buffer
done
passes fast illegal

# 7. The driver's own refusals.
found fast 0 "is launched with 129 threads, its __launch_bounds__ say 128" bad_launches
found fast 0 "^EMULATE: cuMemcpyHtoD: 1001 bytes at 0x.* are not inside a live" bad_copies
EMULATE_STATS=1 found fast 0 "77 bytes leaked in 1 allocations" leaks
passes fast fresh_memory
passes asan fresh_memory
EMULATE_MEMORY=1000000 passes fast capacity
passes fast bad_launches
found fast 77 "argument 1 of the launch is 0x.*, which is no device memory" wild_argument
passes fast no_context
EMULATE_SEED=5 EMULATE_LOST_AFTER=1 passes fast environment
passes fast lost
passes asan lost

# 8. A fault that a flag plants, in files that are built already; and one that no file names.
passes fast planted 0
output=$("$HERE/build.sh" fast "$OUT/fast" -DPLANTED_IN_SELFTEST 2>&1)
tell "build planted" "$([ $? = 0 ] && echo 1)" "$output"
passes fast planted 1
output=$("$HERE/build.sh" fast "$OUT/fast" -DPLANTED_BY_NOBODY 2>&1)
tell "build planted by nobody" "$([ $? = 1 ] && echo 1)" "$output"
output=$("$HERE/build.sh" fast "$OUT/fast" 2>&1)
tell "build without it again" "$([ $? = 0 ] && echo 1)" "$output"
passes fast planted 0

# 9. The program text, its hash, and the stand-in compiler.
unset EMULATE_ANY_SOURCE
for what in known stale refused; do
  python3 "$HERE/selftest/images.py" "$OUT/fast" $what >"$OUT/fast/images.txt" 2>&1
  tell "compile $what" "$([ $? = 0 ] && echo 1)" "$(cat "$OUT/fast/images.txt")"
done
passes fast image "$OUT/fast/known.cubin" known
passes fast image "$OUT/fast/known.ptx" known
found fast 0 "^EMULATE: libkernels.so was not built from this source" image \
  "$OUT/fast/stale.cubin" stale

echo "$GOOD of $TOTAL"
[ $GOOD = $TOTAL ]
