"""Reference logits of a Hugging Face directory from an independent engine, for `lockstep check-logits`.

    python tools/reference_logits.py MODEL_DIR OUT.safetensors

Needs torch, transformers, tokenizers and safetensors. Runs eager attention in float32 on the CPU. Writes for each
prompt i: `i.input_ids` [T], `i.prefill_logits` [T, vocabulary], `i.greedy_ids` [32] and `i.greedy_logits`
[32, vocabulary], where the greedy run goes on past end tokens.
"""

import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

PROMPTS = [
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox jumps over the lazy dog, and then",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "<|im_start|>user\nWrite a haiku about rain on a tin roof.<|im_end|>\n<|im_start|>assistant\n",
    "In 1969, 3 people flew 384,400 km to the Moon. In the years after",
]
NUM_GREEDY = 32


def main(model_dir: str, out: str) -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokenizer = Tokenizer.from_file(f"{model_dir}/tokenizer.json")
    tensors = {}
    for i, prompt in enumerate(PROMPTS):
        ids = torch.tensor([tokenizer.encode(prompt).ids])
        step = model(ids, use_cache=True)
        tensors[f"{i}.input_ids"] = ids[0]
        tensors[f"{i}.prefill_logits"] = step.logits[0].contiguous()
        greedy_ids, greedy_logits = [], []
        row = step.logits[0, -1]
        for _ in range(NUM_GREEDY):
            greedy_logits.append(row)
            greedy_ids.append(int(row.argmax()))
            step = model(
                torch.tensor([[greedy_ids[-1]]]), past_key_values=step.past_key_values, use_cache=True
            )
            row = step.logits[0, -1]
        tensors[f"{i}.greedy_ids"] = torch.tensor(greedy_ids)
        tensors[f"{i}.greedy_logits"] = torch.stack(greedy_logits)
    save_file(tensors, out)
    print(f"{out}: {len(PROMPTS)} prompts of {model_dir}")


if __name__ == "__main__":
    main(*sys.argv[1:])
