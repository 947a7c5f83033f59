#!/usr/bin/env python3
"""Compiles with the stand-in for NVRTC, as a host program would: images.py OUT_DIR CASE.

known: the very program text that build.sh inlined; its images are kept for the driver's case.
stale: the same with one more byte, so that no kernel was built from it.
refused: options and texts that the stand-in must not take.
"""

import ctypes
import os
import sys

RIGHT = ["--gpu-architecture=sm_90", "--fmad=false", "--std=c++17"]


def compile_text(nvrtc, text, options):
    """The status of the compilation, its log, and both images or None."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"plain.cu", 0, None, None)
    words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    status = nvrtc.nvrtcCompileProgram(program, len(options), words)
    size = ctypes.c_size_t()

    def fetch(name):
        if getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size)) != 0:
            return None
        out = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{name}")(program, out)
        return out.raw

    images = fetch("CUBIN"), fetch("PTX")
    log = fetch("ProgramLog")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return status, log, *images


def main():
    folder, case = sys.argv[1:]
    nvrtc = ctypes.CDLL(os.path.join(folder, "libnvrtc.so.13"))
    with open(os.path.join(folder, "plain.inlined.cu"), "rb") as file:
        text = file.read()
    assert b"#include" not in text and b"#line" not in text
    if case == "refused":
        for options in (RIGHT[:1], RIGHT + ["--use_fast_math"], RIGHT + ["--ftz=true"]):
            status, log, cubin, _ = compile_text(nvrtc, text, options)
            assert status == 6 and b"EMULATE:" in log and cubin is None, (options, status, log)
        status, log, _, _ = compile_text(nvrtc, b'#include "x.cuh"\n' + text, RIGHT)
        assert status == 6 and b"#include" in log
        return
    if case == "stale":
        text += b"\n"
    status, log, cubin, ptx = compile_text(nvrtc, text, RIGHT)
    assert status == 0, log
    for image, ending in ((cubin, "cubin"), (ptx, "ptx")):
        with open(os.path.join(folder, f"{case}.{ending}"), "wb") as file:
            file.write(image)


if __name__ == "__main__":
    main()
