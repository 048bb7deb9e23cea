"""Shared parts of the benchmarks' command lines: the parser, and the shapes of random models."""

import argparse
import json
from pathlib import Path
from typing import Any

from orchestrator.cost import memory

SHAPES = {name.partition("/")[2].lower(): shape for name, shape in memory.SHAPES.items()} | {
    "qwen3-1.7b": memory.ModelShape(28, 2048, 16, 8, 128, 6144, 151936, tied=True),
    # Small enough for a CPU, with heads that vLLM can serve there.
    "small": memory.ModelShape(2, 64, 2, 1, 32, 128, 1024, tied=True),
}


def benchmark_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for `python -m benchmarks.MODULE` whose help shows the module's docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option --json."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements")


def write_json(arguments: argparse.Namespace, measured: dict[str, Any]) -> None:
    """Write the measurements and their options to the file of --json, if any."""
    if arguments.json:
        options = {name: value for name, value in vars(arguments).items() if name != "json"}
        content = {"options": options} | measured
        arguments.json.write_text(json.dumps(content, indent=1, default=str) + "\n")
