"""The parser that all benchmarks share."""

import argparse


def benchmark_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for `python -m benchmarks.MODULE` whose help shows the module's docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
