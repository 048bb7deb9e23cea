"""The outcomes and pass rates of a difficulty table, counted. Pure."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.proportions import counts
from policies.partition import rate_bands
from tasks import OUTCOMES

# Names of RATE_BANDS in a report, and of prompts without a pass rate.
BANDS = ("0 %", "≤ 25 %", "≤ 50 %", "≤ 75 %", "< 100 %", "100 %", "none")


def outcome_counts(table: pa.Table) -> dict[str, int]:
    """Outcome -> samples of all prompts of a difficulty table, for the outcomes that it counts."""
    columns = dict(zip(OUTCOMES, ("successes", *OUTCOMES[1:]), strict=True))
    known = {o: pc.sum(table[name]) for o, name in columns.items() if name in table.column_names}
    return {outcome: int(count.as_py() or 0) for outcome, count in known.items()}


def band_of(table: pa.Table) -> np.ndarray:
    """[prompts]: the position in BANDS of each pass rate."""
    rate = table["pass_rate"].to_numpy(zero_copy_only=False)
    return np.where(np.isnan(rate), len(BANDS) - 1, rate_bands(rate))


def pass_rate_histogram(table: pa.Table, bins: int) -> np.ndarray:
    """Prompts per pass-rate bin: `bins` + 1 counts, at 0, 1/bins, …, 1 (nearest)."""
    rate = pc.drop_null(table["pass_rate"]).to_numpy()
    return np.bincount(np.rint(rate * bins).astype(int), minlength=bins + 1)


def outcome_histogram(table: pa.Table, bins: int) -> np.ndarray:
    """[bins + 2, outcomes]: prompts by pass rate 0, 1/bins, …, 1 (nearest) and outcome.

    Each prompt counts as one, distributed over OUTCOMES like its samples. The last row is for
    prompts without a pass rate.
    """
    rate = table["pass_rate"].to_numpy()
    bin_of = np.where(np.isnan(rate), bins + 1, np.rint(np.nan_to_num(rate) * bins)).astype(int)
    columns = ("successes", *OUTCOMES[1:])
    known = [column for column in columns if column in table.column_names]
    samples = np.maximum(sum(counts(table, column) for column in known), 1)
    histogram = np.zeros((bins + 2, len(OUTCOMES)))
    for column in known:  # one column of shares at a time: pools are large
        shares = counts(table, column) / samples
        histogram[:, columns.index(column)] = np.bincount(bin_of, shares, minlength=bins + 2)
    return histogram


def complete_pass_rates(table: pa.Table, samples: int, count_truncated: str = "wrong") -> pa.Table:
    """A difficulty table with pass rates that select the same subset as the full probe.

    The missing samples of a prompt that was decided early count as failures; other outcomes would
    give the same subset.
    """
    short = table["n"].to_numpy() < samples
    unscored = (
        table["error"].to_numpy() + (count_truncated == "exclude") * table["truncated"].to_numpy()
    )
    full = table["successes"].to_numpy() / np.maximum(samples - unscored, 1)
    rate = np.where(short, full, table["pass_rate"].to_numpy(zero_copy_only=False).astype(float))
    column = table.column_names.index("pass_rate")
    return table.set_column(column, "pass_rate", pa.array(rate, mask=np.isnan(rate)))
