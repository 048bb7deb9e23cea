"""Tokens per second of Decile's sampler, compared with plain `generate` in the same process.

Baseline: Hugging Face `generate` in static batches of 16 prompts times K samples
(`num_return_sequences=K`), where every batch runs to its longest answer. Compared with it:
`orchestrator.sampling.transformers`, vLLM with --vllm, and llama.cpp with --llama. All sample from
the same model at temperature 1, in alternating runs. Tokens count up to and including each answer's
end token; the result is the ratio of each pair of runs, which depends less on the machine than
absolute speeds. --roofline adds the share of Decile's time that its matrix products take alone.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.command_line import SHAPES, add_json, benchmark_parser, write_json
from benchmarks.roofline import Profile, operations, roofline
from benchmarks.shapes import add_ends, save_random_model
from orchestrator.embedded import EMBEDDED, IN_WHEELS, NAMES, embedded_path, wheel_file
from orchestrator.sampling import Sampler, load_sampler
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.gguf_models import wheel_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler
from tasks import get_task

STATIC_PROMPTS = 16
LLAMA = str(Path(__file__).with_name("llama_batches.py"))  # runs in a Python of its own
Run = Callable[[list[Request], int], int]  # requests and seed -> sampled tokens


def main() -> None:
    """Measure and print a table."""
    arguments = options()
    torch.set_num_threads(arguments.threads)
    requests = questions(arguments.prompts, arguments.samples)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        sampler, runs, measured = load_runs(arguments, Path(folder), requests, processes)
        print(*(f"{name} {value}" for name, value in measured.items()), sep=", ")
        for run in runs.values():
            run(requests[:2], 0)  # warm-up, not counted
        clock = cpu_seconds if arguments.cpu_time else time.perf_counter
        pairs, profiles = [], []
        for repeat in range(arguments.repeats):
            pairs.append({name: rate(run, requests, repeat, clock) for name, run in runs.items()})
            if arguments.roofline:
                ours = next(run for name, run in runs.items() if name.startswith("Decile"))
                profiles.append(profiled(sampler, ours, requests, repeat))
    print_ratios(pairs)
    for profile in profiles:
        print(*(f"{name} {value:.2f}" for name, value in profile.items()), sep=", ")
    results = {"pairs": pairs, "ratios": ratios(pairs), "profiles": profiles}
    write_json(arguments, measured | results)


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("probe", __doc__)
    add: Callable[..., Any] = parser.add_argument
    add(
        "--model",
        metavar="MODEL",
        default="tiny",
        help=f"the folder of a saved model, or {', '.join(NAMES)} (default tiny)",
    )
    add("--shape", choices=SHAPES, help="instead: random weights in bfloat16 in this shape")
    add_ends(parser)
    add("--prompts", type=int, default=64, help="shuffled_objects prompts (default 64)")
    add("--samples", type=int, default=8, help="samples per prompt, K (default 8)")
    add("--tokens", type=int, default=96, help="limit on new tokens per sample (default 96)")
    add("--repeats", type=int, default=5, help="pairs of runs (default 5)")
    add(
        "--rows",
        default="0",
        help="rows per batch of Decile's sampler, for example 128,512 (default: its own choice)",
    )
    add(
        "--vllm",
        type=json.loads,
        metavar="ENGINE_ARGS",
        help="also compare vLLM, with these engine_args in JSON; on a GPU, gpu_memory_utilization "
        "must leave memory for the other samplers",
    )
    add(
        "--llama",
        metavar="PYTHON",
        help="also compare llama.cpp, from llama-cpp-python in this Python: with the model's own "
        "GGUF file, and the same in float32; for a model of a wheel",
    )
    add(
        "--llama-options",
        default="--rows=64 --unified",
        help="of benchmarks/llama_batches.py (default %(default)r, the fastest of those tried)",
    )
    add(
        "--roofline",
        action="store_true",
        help="after each pair, profile Decile's sampler and time its matrix products alone, in "
        "CPU seconds",
    )
    add("--threads", type=int, default=1, help="torch threads (default 1, as in a sampler actor)")
    add(
        "--cpu-time",
        action="store_true",
        help="count CPU seconds instead of wall time, for a shared machine",
    )
    add("--device", help="cpu or cuda (default: cuda if available)")
    add_json(parser)
    arguments = parser.parse_args()
    if arguments.llama and (arguments.shape or arguments.model not in IN_WHEELS):
        parser.error(f"--llama needs --model {' or '.join(IN_WHEELS)}")
    return arguments


def load_runs(
    arguments: argparse.Namespace, folder: Path, requests: list[Request], processes: ExitStack
) -> tuple[TransformersSampler, dict[str, Run], dict[str, Any]]:
    """Decile's sampler, the runs to compare by name, and their device."""
    path = Path(arguments.model)
    if arguments.shape:
        save_random_model(arguments.shape, path := folder / arguments.shape, arguments.ends)
    elif arguments.model in IN_WHEELS:
        path = wheel_model(arguments.model).folder
    elif arguments.model in EMBEDDED:
        path = embedded_path(arguments.model)
    source = ModelSource(path.name, str(path), identity="unused: nothing is stored")
    start = time.perf_counter()
    sampler, loaded = TransformersSampler.load(source, arguments.device), time.perf_counter()
    load_seconds = {"Decile": loaded - start}
    runs: dict[str, Run] = {"generate": partial(static, sampler, arguments.tokens)}
    for rows in map(int, arguments.rows.split(",")):
        width = rows or sampler.limits.rows
        runs[f"Decile, {width} rows"] = partial(sampled, sampler, arguments.tokens, width)
    if arguments.vllm is not None:
        vllm = load_sampler(source, "vllm", engine_args=arguments.vllm)
        runs["vLLM"] = partial(sampled, vllm, arguments.tokens, 0)
        load_seconds["vLLM"] = time.perf_counter() - loaded
    if arguments.llama:
        for kind, extra in {"float32": ["--float32"], "own file": []}.items():
            command = [arguments.llama, LLAMA, str(wheel_file(arguments.model)), *extra]
            command += arguments.llama_options.split()
            command.append(f"--threads={arguments.threads}")
            process = processes.enter_context(answering(command))
            runs[f"llama.cpp, {kind}"] = partial(of_llama, process, sampler, arguments.tokens)
    return sampler, runs, description(sampler, requests) | {"load_seconds": load_seconds}


@contextmanager
def answering(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A ready process that answers each line of its input with one line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, stderr=subprocess.DEVNULL, text=True) as process:
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{command} does not start: run it to see why")
        yield process
        process.stdin.close()


def of_llama(
    process: subprocess.Popen[str],
    sampler: TransformersSampler,
    tokens: int,
    requests: list[Request],
    seed: int,
) -> int:
    """Tokens sampled by llama.cpp from the same prompts, without their texts."""
    job = {
        "prompts": sampler.rendered(requests),
        "samples": len(requests[0].samples),
        "tokens": tokens,
        "seed": seed,
    }
    print(json.dumps(job), file=process.stdin, flush=True)
    return int(json.loads(process.stdout.readline())["tokens"])


def cpu_seconds() -> float:
    """CPU seconds of this process and of its child processes, which still run."""
    children = psutil.Process().children(recursive=True)
    times = [child.cpu_times() for child in children if child.is_running()]
    return time.process_time() + sum(each.user + each.system for each in times)


def profiled(
    sampler: TransformersSampler, run: Run, requests: list[Request], seed: int
) -> dict[str, float]:
    """The parts of a run's time, and the time of its matrix products alone."""
    profile = Profile(time.process_time)
    with profile.measuring(sampler):
        tokens = run(requests, seed)
    alone = roofline(sampler.model, profile.shapes, time.process_time)
    return profile.shares() | {
        "tok/s": tokens / profile.seconds["all"],
        "tok/s of the products alone": tokens / alone,
        "share of the roofline": alone / profile.seconds["all"],
        "MFLOP per token": operations(sampler.model, profile.shapes) / tokens / 1e6,
        "GFLOP/s of the products alone": operations(sampler.model, profile.shapes) / alone / 1e9,
    }


def questions(prompts: int, samples: int) -> list[Request]:
    """The first questions of the generated pool, each with `samples` samples."""
    task = get_task("shuffled_objects", train=prompts)
    pool = task.train()
    return [Request(p.prompt_id, task.messages(p.question), range(samples)) for p in pool]


def sampled(sampler: Sampler, tokens: int, rows: int, requests: list[Request], seed: int) -> int:
    """Tokens sampled by an engine of Decile; `rows` per batch, if not 0."""
    if rows and isinstance(sampler, TransformersSampler):
        sampler.limits.rows = rows
    settings = SamplingSettings(max_completion_length=tokens, seed=seed)
    completions = sampler.sample(requests, settings)
    return sum(completion.tokens for row in completions for completion in row)


def static(sampler: TransformersSampler, tokens: int, requests: list[Request], seed: int) -> int:
    """Tokens sampled by `generate` in static batches, including decoding."""
    torch.manual_seed(seed)
    return sum(
        static_batch(sampler, requests[start : start + STATIC_PROMPTS], tokens)
        for start in range(0, len(requests), STATIC_PROMPTS)
    )


def static_batch(sampler: TransformersSampler, requests: list[Request], tokens: int) -> int:
    """Tokens of one call to `generate`, each answer counted up to and including its end token."""
    out = generated(sampler, requests, tokens)
    sampler.tokenizer.batch_decode(out, skip_special_tokens=True)
    ended = torch.isin(out, torch.tensor(sampler.eos, device=out.device)).int().cumsum(-1)
    return int((ended == 0).sum() + (ended[:, -1] > 0).sum())


def generated(sampler: TransformersSampler, requests: list[Request], tokens: int) -> torch.Tensor:
    """New tokens [P * K, T] of one call to `generate`, a prompt's K samples one after the other."""
    tokenizer: Any = sampler.tokenizer
    inputs = tokenizer.apply_chat_template(
        [request.messages for request in requests],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    ).to(sampler.model.device)
    out = sampler.model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=tokens,
        num_return_sequences=len(requests[0].samples),
        pad_token_id=tokenizer.pad_token_id,
    )
    return out[:, inputs["input_ids"].shape[1] :]  # type: ignore[no-any-return]


def rate(run: Run, requests: list[Request], repeat: int, clock: Callable[[], float]) -> float:
    """Tokens per second of one run."""
    begin = clock()
    tokens = run(requests, repeat)
    return tokens / (clock() - begin)


def description(sampler: TransformersSampler, requests: list[Request]) -> dict[str, Any]:
    """The measured setting."""
    lengths, model = sampler.count_tokens(requests), sampler.model
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "prompts": len(requests),
        "prompt_tokens": f"{min(lengths)}–{max(lengths)}",
        "samples": len(requests[0].samples),
    }


def ratios(pairs: list[dict[str, float]]) -> dict[str, list[float]]:
    """Tokens per second of each other run, divided by those of its paired `generate`."""
    names = [name for name in pairs[0] if name != "generate"]
    return {name: [pair[name] / pair["generate"] for pair in pairs] for name in names}


def print_ratios(pairs: list[dict[str, float]]) -> None:
    """Print tokens per second, a line per pair; then minimum, median, maximum of the ratios."""
    print("".join(f"{name + ' tok/s':>24}" for name in pairs[0]))
    for pair in pairs:
        print("".join(f"{speed:24,.0f}" for speed in pair.values()))
    for name, values in ratios(pairs).items():
        print(
            f"{name} / generate: min {min(values):.2f}, median {statistics.median(values):.2f}, "
            f"max {max(values):.2f}"
        )


if __name__ == "__main__":
    main()
