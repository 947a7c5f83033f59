#!/usr/bin/env python3
"""Makes one program text of a kernel file: the definition of what the compilers are given.

Each line `#include "name.cuh"`, or of a .cu file, is replaced by that file's text, the first time
only; later ones are dropped, and so are `#pragma once` lines. The host program does the same, so
the hash of the text tells whether emulated kernels were built from what it holds. Nothing else is
changed.

usage: inline.py FILE.cu OUT_TEXT OUT_MARKED
OUT_TEXT gets the program text; OUT_MARKED the same with #line directives, for debug information,
and with a line for each __launch_bounds__, which the host's compiler does not know.
Prints the 64-bit FNV-1a hash of the program text.
"""

import os
import re
import sys

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+\.cuh?)"\s*$')
BOUNDS = re.compile(r"__launch_bounds__\(\s*([^,()]+?)\s*(?:,[^()]*)?\)\s*(\w+)\s*\(")
ONCE = re.compile(r"\s*#\s*pragma\s+once\s*$")


def inline(path, seen, lines):
    """Appends (text, file, number) for each line that the program has of this file."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    # Lines end in \n; a file that lacks the last one still ends its line.
    parts = text.split("\n")
    if parts[-1] == "":
        parts.pop()
    for number, line in enumerate(parts, 1):
        include = INCLUDE.match(line)
        if include:
            name = include.group(1)
            if name not in seen:
                seen.add(name)
                inline(os.path.join(os.path.dirname(path), name), seen, lines)
        elif not ONCE.match(line):
            lines.append((line, path, number))


def program(path):
    """The lines of the program that a .cu file stands for."""
    lines = []
    inline(path, {os.path.basename(path)}, lines)
    return lines


def text_of(lines):
    return "".join(line + "\n" for line, _, _ in lines)


def marked(lines):
    """The same text, with a #line directive wherever the origin jumps."""
    out = []
    last = None
    for line, path, number in lines:
        if last != (path, number - 1):
            out.append(f'#line {number} "{os.path.basename(path)}"\n')
        out.append(line + "\n")
        last = (path, number)
    for threads, kernel in BOUNDS.findall(text_of(lines)):
        out.append(f"EMULATE_LAUNCH_BOUNDS({kernel}, {threads});\n")
    return "".join(out)


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def write_if_new(path, text):
    """Leaves a file alone that already says this, so that its age tells something."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            if file.read() == text:
                return
    except FileNotFoundError:
        pass
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    lines = program(sys.argv[1])
    write_if_new(sys.argv[2], text_of(lines))
    write_if_new(sys.argv[3], marked(lines))
    print(f"{fnv1a(text_of(lines)):016x}")


if __name__ == "__main__":
    main()
