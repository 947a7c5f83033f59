#!/bin/bash
# Builds the host emulation: libkernels.so from the kernel files, and the stand-ins libcuda.so.1 and
# libnvrtc.so.13. What has not changed is not built again, and two callers do not get in each
# other's way. It never touches anything outside OUT_DIR.
#
#   build.sh MODE OUT_DIR [-DNAME ...]
#   MODE     fast: plain | race: each access is checked | asan: AddressSanitizer and UBSan
#   -DNAME   plants a fault in a kernel; the hash of the source stays the same
#   KERNELS  in the environment: another folder of kernel files
set -euo pipefail

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
}
[ $# -ge 2 ] || usage
MODE=$1
OUT=$2
shift 2
DEFINES=("$@")
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KERNELS=${KERNELS:-$HERE/../kernels}
CXX=${CXX:-g++}

COMMON=(-std=c++17 -O2 -g -fPIC -mavx2 -mfma -ffp-contract=off)
COMMON+=(-fno-strict-aliasing -fno-math-errno)
# Attributes and labels that only the device's compiler knows would warn without end.
KERNEL=("${COMMON[@]}" -w -I"$HERE" -include cuda_on_host.h)
OWN=("${COMMON[@]}" -fno-semantic-interposition -Wall -Wextra)
LINK=()
RUNTIME=("$HERE"/runtime/*.cpp "$HERE"/driver/*.cpp)
case $MODE in
fast) KERNEL+=(-fwrapv) ;;
race)
  # The hooks that the instrumentation calls are ours (race/), not those of the sanitizer's library.
  KERNEL+=(-fwrapv -fsanitize=thread,bounds -fno-sanitize-recover=bounds)
  KERNEL+=(--param tsan-instrument-func-entry-exit=0)
  RUNTIME+=("$HERE"/race/*.cpp)
  ;;
asan)
  KERNEL+=(-fsanitize=address,undefined,float-cast-overflow)
  KERNEL+=(-fno-sanitize-recover=undefined,float-cast-overflow)
  KERNEL+=(-fsanitize-sections=emulate_shared)
  OWN+=(-fsanitize=address)
  LINK+=(-fsanitize=address,undefined)
  ;;
*) usage ;;
esac

if ! compgen -G "$KERNELS/*.cu" >/dev/null; then
  echo "build.sh: no kernel files in $KERNELS" >&2
  exit 1
fi
mkdir -p "$OUT/objects"
OUT=$(cd "$OUT" && pwd)
exec 9>"$OUT/lock"
flock 9

key() { sha256sum | cut -d' ' -f1; }
VERSION=$("$CXX" --version | head -1)
ALL=$(find "$HERE" "$KERNELS" -type f \( -name '*.cu' -o -name '*.cuh' -o -name '*.h' \
  -o -name '*.cpp' -o -name '*.py' -o -name '*.sh' \) | sort)
STAMP=$( (echo "$VERSION $MODE ${DEFINES[*]} $ALL" && cat $ALL) | key)
if [ "$(cat "$OUT/stamp" 2>/dev/null)" = "$STAMP" ]; then
  echo "build.sh: $MODE is up to date in $OUT"
  exit 0
fi
rm -f "$OUT/stamp"
HEADERS=$(cat "$HERE"/cuda_on_host.h "$HERE"/shim/*.h "$HERE"/runtime/*.h "$HERE"/driver/*.h | key)

# Runs a command that makes $1, unless it was made by the same command from the same inputs.
RUNNING=0
remake() {
  local object=$1 inputs=$2
  shift 2
  local wanted
  # Without the folder, so that what was made can be copied to another one.
  wanted=$(echo "$VERSION $HEADERS ${*//"$OUT"/} $(cat $inputs | key)" | key)
  if [ -e "$object" ] && [ "$(cat "$object.key" 2>/dev/null)" = "$wanted" ]; then return; fi
  if [ $RUNNING -ge 2 ]; then
    wait -n || exit 1
    RUNNING=$((RUNNING - 1))
  fi
  (
    rm -f "$object.key"
    "$@" 9>&-
    # Function-local statics of templates land in .bss, whatever attribute they have; a kernel file
    # has no other, so all of it is shared memory.
    case $object in */kernel_*)
      objcopy --set-section-flags .bss=alloc,load,data,contents \
        --rename-section .bss=emulate_shared,alloc,load,data,contents "$object"
      ;;
    esac
    echo "$wanted" >"$object.key"
  ) &
  RUNNING=$((RUNNING + 1))
}
finish() {
  while [ $RUNNING -gt 0 ]; do
    wait -n || exit 1
    RUNNING=$((RUNNING - 1))
  done
}

driver_objects=()
for source in "${RUNTIME[@]}"; do
  object=$OUT/objects/$(basename "$(dirname "$source")")_$(basename "$source" .cpp).o
  driver_objects+=("$object")
  remake "$object" "$source" "$CXX" "${OWN[@]}" -c "$source" -o "$object"
done
nvrtc_object=$OUT/objects/nvrtc.o
remake "$nvrtc_object" "$HERE/nvrtc/nvrtc.cpp" \
  "$CXX" "${OWN[@]}" -c "$HERE/nvrtc/nvrtc.cpp" -o "$nvrtc_object"

# A planted fault only touches the files that name it; one that no file names is a mistake.
declare -A named
for define in "${DEFINES[@]}"; do named[$define]=0; done
defines_of() {
  local define word
  own=()
  for define in "${DEFINES[@]}"; do
    word=${define#-D}
    if grep -qw -- "${word%%=*}" "$1"; then
      own+=("$define")
      named[$define]=1
    fi
  done
}

kernel_objects=()
table=$OUT/objects/sources.cpp
{
  echo '#include "shim/register.h"'
  echo 'extern "C" char __start_emulate_shared[] __attribute__((weak, visibility("hidden")));'
  echo 'extern "C" char __stop_emulate_shared[] __attribute__((weak, visibility("hidden")));'
  echo '__attribute__((constructor)) static void add_all() {'
  echo '  emulate::register_shared(__start_emulate_shared, __stop_emulate_shared);'
} >"$table.new"
for source in "$KERNELS"/*.cu; do
  name=$(basename "$source" .cu)
  hash=$(python3 "$HERE/inline.py" "$source" "$OUT/$name.inlined.cu" "$OUT/$name.marked.cu")
  echo "  emulate::register_source(0x${hash}ull, \"$name.cu\");" >>"$table.new"
  # In a namespace without a name, so that two files may have functions of the same name.
  printf 'namespace {\n#include "%s"\n}\n' "$OUT/$name.marked.cu" >"$OUT/objects/$name.unit.cc"
  object=$OUT/objects/kernel_$name.o
  kernel_objects+=("$object")
  defines_of "$OUT/$name.marked.cu"
  remake "$object" "$OUT/$name.marked.cu" "$CXX" "${KERNEL[@]}" "${own[@]}" \
    "-DEMULATE_SOURCE_HASH=0x${hash}ull" -c "$OUT/objects/$name.unit.cc" -o "$object"
done
echo '}' >>"$table.new"
mv "$table.new" "$table"
remake "$OUT/objects/sources.o" "$table" \
  "$CXX" "${COMMON[@]}" -I"$HERE" -c "$table" -o "$OUT/objects/sources.o"
finish
for define in "${DEFINES[@]}"; do
  if [ "${named[$define]}" = 0 ]; then
    echo "build.sh: no kernel file names ${define#-D}" >&2
    exit 1
  fi
done

# Under another name first: a program that runs right now keeps what it has loaded.
link() {
  local library=$1
  shift
  "$CXX" -shared "${LINK[@]}" "$@" -o "$OUT/$library.new"
  mv "$OUT/$library.new" "$OUT/$library"
}
link libcuda.so.1 -Wl,-soname,libcuda.so.1 "${driver_objects[@]}" -ldl -lpthread
link libnvrtc.so.13 -Wl,-soname,libnvrtc.so.13 "$nvrtc_object"
link libkernels.so "${kernel_objects[@]}" "$OUT/objects/sources.o" "$OUT/libcuda.so.1" \
  "-Wl,-rpath,\$ORIGIN"
echo "$STAMP" >"$OUT/stamp"
echo "build.sh: built $MODE of ${#kernel_objects[@]} kernel files in $OUT"
