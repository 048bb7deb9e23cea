"""`decile replay --rates`: pass rates of two models on the same prompts, from one file or two."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from orchestrator.evaluation.two_models import ModelRates, TwoModels
from orchestrator.optional.exchange.columns import RATE, rate_names
from orchestrator.optional.exchange.recordings import group_size_of
from orchestrator.optional.exchange.replay_files import default_policies, policy_of, policy_parts_of
from orchestrator.optional.exchange.run_logs import columns_in, first_value
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.selection.budgets import check_size, size_of
from orchestrator.storage.errors import UserError
from tasks.sources.files import read_file
from tasks.sources.roles import NEEDS
from tasks.sources.values import counts_of, share_of, valid_count, value_text


class _Column(NamedTuple):
    """The rates of a column: prompt -> correct and all completions; and rows without a rate."""

    model: str
    counts: Mapping[str, tuple[int, int]]
    missing: int
    rows: int


def compare_models(
    files: Sequence[str],
    written: Sequence[str | Mapping[str, Any]] = (),
    budget: str = "0.1",
) -> tuple[TwoModels, RowCounts]:
    """Two models' rates of their common prompts. Raises UserError, TaskError, PolicyError."""
    columns = [column for file in files for column in _columns(file, single=len(files) > 1)]
    if len(columns) != 2:
        names = ", ".join(column.model for column in columns)
        raise UserError(
            f"--rates {' '.join(files)}: {counted(len(columns), 'column')} of rates "
            f"({names:.200}): write two files with one column each, or one file with two"
        )
    one, two = columns
    ids = sorted(one.counts.keys() & two.counts.keys())
    if len(ids) < 2:
        shared = counted(len(ids), "prompt")
        raise UserError(f"--rates {' '.join(files)}: the models share {shared}: write the same ids")
    size = size_of(budget, len(ids))
    check_size(budget, size, len(ids), "that both models have")
    rates = [
        ModelRates(column.model, *np.array([column.counts[name] for name in ids]).T)
        for column in columns
    ]
    policies = [policy_of(*policy_parts_of(each)) for each in written] or default_policies()
    compared = TwoModels(ids, (rates[0], rates[1]), policies, size)
    if not compared.exchanges:
        raise UserError(next(iter(compared.refused.values()), "no policy can choose by rates"))
    left_out = {
        "without a rate": one.missing + two.missing,
        "that one model lacks": len(one.counts) + len(two.counts) - 2 * len(ids),
    }
    return compared, RowCounts(one.rows + two.rows, left_out)


def _columns(file: str, *, single: bool) -> list[_Column]:
    """The columns of rates of a file; exactly one if `single`. Raises UserError or TaskError."""
    rows = read_file(file, ()).rows
    names = [*dict.fromkeys(name for row in rows for name in row)]
    prompts, samples = columns_in(NEEDS["replay"][0], names), columns_in(("samples",), names)
    rates = rate_names(names)
    if not prompts or not rates or (single and len(rates) > 1):
        problem = f"its rates are {', '.join(rates)}" if prompts and rates else "rates are missing"
        raise UserError(f"{file}: {problem}: write the columns prompt_id and pass_rate")
    columns = []
    for name in rates:
        stated = RATE.fullmatch(name)
        size = valid_count((stated["at"] or stated["per"]) if stated else None)
        cells = [
            (
                f"{file} row {number}",
                value_text(first_value(row, prompts)),
                row.get(name),
                size or valid_count(first_value(row, samples)),
            )
            for number, row in enumerate(rows, 1)
        ]
        model = file if single else name
        columns.append(_column(file, name, model, cells))
    return columns


def _column(
    file: str, name: str, model: str, cells: Sequence[tuple[str, str, Any, int | None]]
) -> _Column:
    shares, counts, missing = {}, dict[str, tuple[int, int]](), 0
    for place, prompt, value, samples in cells:
        if prompt in counts or prompt in shares:
            raise UserError(f"{place}: prompt {prompt:.60} occurs twice: write one row per prompt")
        if pair := counts_of(value):
            counts[prompt] = pair
        elif (share := share_of(value, place, name)) is None:
            missing += 1
        else:
            shares[prompt] = (share, samples)
    if any(samples is None for _, samples in shares.values()):
        size = group_size_of(file, name, np.array([share for share, _ in shares.values()]))
        shares = {prompt: (share, samples or size) for prompt, (share, samples) in shares.items()}
    for prompt, (share, samples) in shares.items():
        counts[prompt] = (round(share * (samples or 0)), samples or 0)
    known = {prompt: pair for prompt, pair in counts.items() if pair[1]}
    return _Column(model, known, missing + len(counts) - len(known), len(cells))
