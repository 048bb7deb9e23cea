"""The tables of docs/notes/gpu.md from the figures of `benchmarks.gpu_figures`. Pure."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

BEGIN = "<!-- GPU figures: written by `make gpu-figures`, do not edit -->"
END = "<!-- end of the GPU figures -->"
NONE_YET = "No figure has been taken on a GPU yet: `make gpu-figures` fills in the tables here."
PARTS = {
    "rollout": "rollout",
    "scoring": "scoring",
    "forward-backward": "forward–backward",
    "rest": "rest",
}


def with_tables(page: str, figures: dict[str, dict[str, Any]]) -> str:
    """The page with its tables replaced. Raises ValueError if it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    return "\n".join([before + begin, "", tables(figures), "", end + after])


def tables(figures: dict[str, dict[str, Any]]) -> str:
    """All tables, by part: name -> measurement."""
    measured = {
        part: {name: each["result"] for name, each in entries.items() if "result" in each}
        for part, entries in figures.items()
    }
    everything = [each for entries in figures.values() for each in entries.values()]
    if not everything:
        return NONE_YET
    updates = [
        (name, result)
        for part in ("update", "memory", "packing")
        for name, result in measured.get(part, {}).items()
    ]
    blocks = [
        *dict.fromkeys(machine(each) for each in everything),
        *guards(measured.get("guards", {})),
        *titled("Sampling", samplers(measured.get("sampler", {}))),
        *titled("Sampling with vLLM", samplers(measured.get("vllm", {}))),
        *titled("An update", updates_split(measured.get("update", {}))),
        *titled("Peak memory of one cell", memory(updates)),
        *titled("Cells that share the GPU", packing(measured.get("packing", {}))),
        *failures(figures),
    ]
    return "\n\n".join(blocks)


def machine(measurement: dict[str, Any]) -> str:
    """The machine of a measurement."""
    where, gpu = measurement["machine"], measurement["machine"]["gpu"]
    device = "No GPU"
    if gpu:
        device = f"{gpu['name']} ({gpu['gib']:.0f} GiB), driver {gpu['driver']}, CUDA {gpu['cuda']}"
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    return (
        f"{device}; {where['cpus']} CPU cores; Python {where['python']}, {versions}; "
        f"{measurement['date']}."
    )


def titled(title: str, table: str) -> list[str]:
    """A heading and a table, unless the table is empty."""
    return [f"### {title}", table] if table else []


def table(header: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; empty without rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "|" + "---|" * (header.count("|") + 1)
    return "\n".join([f"| {header} |", rule, *lines]) if lines else ""


def spread(values: Sequence[float]) -> str:
    """Minimum, median and maximum."""
    return f"{min(values):.2f} / **{statistics.median(values):.2f}** / {max(values):.2f}"


def samplers(results: dict[str, Any]) -> str:
    """A line for each engine that was compared with `generate`."""
    rows = [
        (
            name,
            f"{result['prompts']} × {result['samples']}, {result['options']['tokens']}",
            engine,
            str(len(result["pairs"])),
            *(
                f"{statistics.median(p[k] for p in result['pairs']):,.0f}"
                for k in ("generate", engine)
            ),
            spread(ratios),
        )
        for name, result in results.items()
        for engine, ratios in result["ratios"].items()
    ]
    return table(
        "model | prompts × K, token limit | engine | pairs | generate tok/s (median) | "
        "engine tok/s (median) | engine ÷ generate: min / median / max",
        rows,
    )


def updates_split(results: dict[str, Any]) -> str:
    """Seconds of an update by part, for plain TRL and for a cell, and their ratio."""
    rows = []
    for name, result in results.items():
        for kind, label in (("bare", "plain TRL"), ("cell", "a cell")):
            splits = [
                run["processes"][0]["parts"]
                for run in result["runs"]
                if (run["kind"], run["at_once"]) == (kind, 1)
            ]
            parts = [statistics.median(split[part] for split in splits) for part in PARTS]
            ratio = spread(result["trl_ratios"]) if kind == "cell" else ""
            rows.append(
                (name, batch(result), label, str(len(splits)))
                + tuple(f"{seconds:.2f}" for seconds in (sum(parts), *parts))
                + (ratio,)
            )
    return table(
        f"model | batch | | runs | s per update | {' | '.join(PARTS.values())} | "
        "a cell ÷ plain TRL: min / median / max",
        rows,
    )


def batch(result: dict[str, Any]) -> str:
    """The completions of an update."""
    options = result["options"]
    return f"{options['prompts']} × 8 × {options['tokens']} tokens"


def memory(results: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """GiB of a cell alone on the GPU, with the estimate."""
    return table(
        "model | batch | allocated in the rollout (estimate) | allocated in the update (estimate) "
        "| reserved | on the GPU | estimate | estimate ÷ on the GPU",
        dict.fromkeys(
            (name, batch(result), *memory_of(run["processes"][0]))
            for name, result in results
            for run in result["runs"]
            if (run["kind"], run["at_once"]) == ("cell", 1)
        ),
    )


def memory_of(process: dict[str, Any]) -> Iterator[str]:
    """The figures of one process; dashes without a GPU."""
    used, estimate = process["memory"], process["estimate_gib"]
    for phase in ("rollout", "update"):
        measured = f"{used[f'{phase}_gib']:.1f}" if used else "–"
        yield f"{measured} ({estimate[phase]:.1f})"
    for name in ("reserved_gib", "device_gib"):
        yield f"{used[name]:.1f}" if used else "–"
    yield f"{estimate['peak']:.1f}"
    yield f"{estimate['peak'] / used['device_gib']:.2f}" if used else "–"


def packing(results: dict[str, Any]) -> str:
    """Updates per second of several cells at once, as a multiple of one alone."""
    rows = []
    for name, result in results.items():
        speeds: dict[int, float] = {}
        for run in result["runs"]:
            count, processes = run["at_once"], run["processes"]
            seconds = statistics.median(sum(p["parts"].values()) for p in processes)
            speeds[count] = count / seconds
            used = [p["memory"] for p in processes if p["memory"]]
            rows.append(
                (
                    name,
                    batch(result),
                    str(count),
                    f"{seconds:.2f}",
                    f"{speeds[count]:.3f}",
                    f"{speeds[count] / speeds[1]:.2f}" if 1 in speeds else "–",
                    f"{max(m['device_gib'] for m in used):.1f}" if used else "–",
                    str(min(p["max_batch"] for p in processes)),
                )
            )
    return table(
        "model | batch | at once | s per update | updates/s | ÷ one at a time | GiB on the GPU | "
        "completions generated at once",
        rows,
    )


def guards(results: dict[str, Any]) -> list[str]:
    """The verdicts on the engine, the planted faults, and the cost of the guards."""
    blocks = []
    for result in results.values():
        verdicts = [f"* {name}: {text}" for name, text in result["verdicts"].items()]
        cost = f"* cost: {100 * result['cost']:.2f} % of the time of updates"
        faults = table(
            "fault in the rollouts | last update | line",
            (
                (name.replace("_", " "), str(each["update"]), each["line"])
                for name, each in result["faults"].items()
            ),
        )
        blocks += ["### Guards", "\n".join([*verdicts, cost]), faults]
    return blocks


def failures(figures: dict[str, dict[str, Any]]) -> list[str]:
    """The measurements without a result."""
    lines = [
        f"* {part}, {name}: {each.get('failed', 'no result')}"
        for part, entries in figures.items()
        for name, each in entries.items()
        if "result" not in each
    ]
    return ["Not measured:\n\n" + "\n".join(lines)] if lines else []
