"""The result table: the same columns in the terminal and on the page."""

from collections.abc import Sequence
from typing import Any

from orchestrator.report.rows import Row

HEAD = (
    "model",
    "dataset",
    "policy",
    "seed",
    "accuracy",
    "gain in points [95 %]",
    "learnable %",
    "updates",
    "tokens",
    "seconds",
    "tied at edge",
)


def table_cells(row: Row) -> tuple[str, ...]:
    """One row as text, in the order of HEAD."""
    result, ledger = row.result, row.result["ledger"]
    points = [100 * value for value in (result["gain"], *row.gain)]
    ties = f"{row.ties['chosen']} of {row.ties['pool']}" if row.ties else "–"
    return (
        result["model"],
        result["dataset"],
        result["policy"],
        str(result["seed"]),
        f"{result['accuracy_base']:.3f} → {result['accuracy_final']:.3f}",
        f"{points[0]:+.1f} [{points[1]:+.1f}, {points[2]:+.1f}]",
        f"{result['learnable_pct']:.1f}",
        str(result["updates"]),
        f"{ledger['prompt_tokens'] + ledger['generated_tokens']:,}",
        f"{ledger['seconds']:.0f}",
        ties,
    )


def flat_row(row: Row) -> dict[str, Any]:
    """One row as plain values, for MLflow and other programs; accuracies are shares."""
    result, keys = row.result, ("model", "dataset", "policy", "seed", "cell_id", "size", "updates")
    numbers = ("accuracy_base", "accuracy_final", "gain", "learnable_pct")
    return {
        **{key: result[key] for key in (*keys, *numbers)},
        "gain_low": row.gain.low,
        "gain_high": row.gain.high,
        **{f"ledger.{name}": value for name, value in result["ledger"].items()},
    }


def text_table(rows: Sequence[Row]) -> str:
    """The table in plain text; columns that hold one value only are still shown."""
    return as_text(HEAD, [table_cells(row) for row in rows])


def as_text(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Any table in plain text, its columns aligned."""
    lines = [head, *body]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    rule = "  ".join("─" * width for width in widths)
    text = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([text[0].rstrip(), rule, *(line.rstrip() for line in text[1:])])
