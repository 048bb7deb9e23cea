"""Sampling with llama.cpp's own batches, as a process that `benchmarks.probe --llama` starts.

It runs in any Python that has llama-cpp-python, so it does not import Decile. Each prompt of a
group is read once; the cache is then copied to its K sequences, and all sequences are decoded as
one batch, which they leave when they end. Requests and replies are lines of JSON.

`python llama_batches.py MODEL.gguf --float32` first writes the weights of a quantized file as
float32 to a temporary file, so that the arithmetic is the same as in the other samplers.
"""

import argparse
import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp as llama


def main() -> None:
    """Answer each line of input with the sampled tokens and their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--unified", action="store_true", help="one cache for all sequences")
    parser.add_argument("--rows", type=int, default=64, help="sequences decoded together")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library prints
    llama.llama_backend_init()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model
        if arguments.float32:
            path = dequantized(path, Path(folder) / "float32.gguf")
        options = llama.llama_model_default_params()
        options.use_extra_bufts = True  # repacked weights, if there are any
        model = llama.llama_model_load_from_file(str(path).encode(), options)
        print("ready", file=replies, flush=True)
        for line in sys.stdin:
            drawn = sampled(model, json.loads(line), arguments)
            print(
                json.dumps({"tokens": sum(map(len, drawn)), "ids": drawn}), file=replies, flush=True
            )


def dequantized(source: Path, target: Path) -> Path:
    """The same weights in float32."""
    options = llama.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize, options.nthread = llama.LLAMA_FTYPE_ALL_F32, True, 1
    if llama.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(options)
    ):
        raise SystemExit(f"{source} cannot be written as float32")
    return target


def sampled(model: Any, request: dict[str, Any], arguments: argparse.Namespace) -> list[list[int]]:
    """Token ids of K completions per prompt, some prompts at a time; `seed` determines all."""
    prompts, k, limit = request["prompts"], request["samples"], request["tokens"]
    group = max(1, arguments.rows // k)
    drawn: list[list[int]] = []
    for start in range(0, len(prompts), group):
        part = prompts[start : start + group]
        longest = max(map(len, part)) + limit
        options = llama.llama_context_default_params()
        options.n_seq_max = len(part) * k
        cells = sum(map(len, part)) + len(part) * k * limit
        options.n_ctx = cells if arguments.unified else longest * len(part) * k
        options.kv_unified = arguments.unified
        options.n_batch = options.n_ubatch = 512
        options.n_threads = options.n_threads_batch = arguments.threads
        context = llama.llama_init_from_model(model, options)
        try:
            drawn += decoded(context, model, part, k, limit, request["seed"] * 1000 + start)
        finally:
            llama.llama_free(context)
    return drawn


def decoded(
    context: Any, model: Any, prompts: list[list[int]], k: int, limit: int, seed: int
) -> list[list[int]]:
    """Token ids of K completions per prompt, decoded as one batch."""
    vocabulary = llama.llama_model_get_vocab(model)
    batch = llama.llama_batch_init(512, 0, 1)
    memory = llama.llama_get_memory(context)
    samplers = [llama.llama_sampler_init_dist(seed + i) for i in range(len(prompts) * k)]
    drawn: list[list[int]] = [[] for _ in samplers]
    try:
        for i, prompt in enumerate(prompts):
            for begin in range(0, len(prompt), 512):
                ids = prompt[begin : begin + 512]
                rows = [(token, begin + n, i * k) for n, token in enumerate(ids)]
                decode(context, batch, rows)
            for copy in range(i * k, i * k + k):  # all K sample from the same logits
                token = llama.llama_sampler_sample(samplers[copy], context, len(ids) - 1)
                drawn[copy].append(token)
                if copy > i * k:
                    llama.llama_memory_seq_cp(memory, i * k, copy, -1, -1)
        while running := [
            row
            for row, ids in enumerate(drawn)
            if len(ids) < limit and not llama.llama_vocab_is_eog(vocabulary, ids[-1])
        ]:
            new = [
                (drawn[row][-1], len(prompts[row // k]) + len(drawn[row]) - 1, row)
                for row in running
            ]
            decode(context, batch, new)
            for place, row in enumerate(running):
                drawn[row].append(llama.llama_sampler_sample(samplers[row], context, place))
    finally:
        llama.llama_batch_free(batch)
        for sampler in samplers:
            llama.llama_sampler_free(sampler)
    return drawn


def decode(context: Any, batch: Any, rows: list[tuple[int, int, int]]) -> None:
    """One pass over (token, position, sequence); logits of the last token of each sequence."""
    batch.n_tokens = len(rows)
    for n, (token, position, sequence) in enumerate(rows):
        batch.token[n], batch.pos[n] = token, position
        batch.n_seq_id[n], batch.seq_id[n][0] = 1, sequence
        batch.logits[n] = n + 1 == len(rows) or rows[n + 1][2] != sequence
    if code := llama.llama_decode(context, batch):
        raise SystemExit(f"llama_decode gives {code}")


if __name__ == "__main__":
    main()
