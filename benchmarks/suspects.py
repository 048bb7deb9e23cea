"""Which planted wrong golds the samples of a probe give away: precision and recall by K and votes.

Reads the probes of an experiment with `label_noise`. A prompt is suspected where at least so many
of its first K completions agree on one answer that is not the gold one. A planted error that no
completion contradicts cannot be found; an answer that a model always gets wrong looks like one.
"""

from collections import Counter
from pathlib import Path

import pyarrow as pa

from benchmarks.command_line import benchmark_parser
from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import make_plan
from orchestrator.probing.probe_folder import parts
from orchestrator.storage.store import Store

COLUMNS = ("prompt_id", "sample", "outcome", "extracted")


def main() -> None:
    """Print a table for each probe with label noise."""
    parser = benchmark_parser("suspects", __doc__)
    parser.add_argument("file", type=Path, help="an experiments.yaml whose probes are stored")
    parser.add_argument("-e", dest="experiment", required=True, help="its experiment")
    parser.add_argument("--storage", default="runs", help="the storage (default runs)")
    arguments = parser.parse_args()
    plan = make_plan(load_config(arguments.file), arguments.experiment)
    for spec in plan.probes:
        if spec.split == "test" or not spec.dataset.label_noise:
            continue
        tables = (part.samples for part in parts(Store(arguments.storage), spec.key, COLUMNS))
        wrong_votes = votes(
            pa.concat_tables(tables),
            plan.pool(spec).prompts("train").column("prompt_id"),
            spec.settings.samples,
        )
        planted = plan.pool(spec).mislabeled
        print(f"{spec.model.name} on {spec.dataset.title}: {len(planted)} planted")
        print(f"{'K':>4}{'votes':>7}{'suspected':>11}{'planted':>9}{'precision':>11}{'recall':>8}")
        for k, by_prompt in wrong_votes.items():
            for least in range(k // 2 + 1, k + 1):
                suspected = {i for i, most in by_prompt.items() if most >= least}
                hits = len(suspected & planted)
                precision = f"{hits / len(suspected):.2f}" if suspected else "–"
                print(
                    f"{k:>4}{least:>7}{len(suspected):>11}{hits:>9}{precision:>11}"
                    f"{hits / len(planted):>8.2f}"
                )


def votes(samples: pa.Table, ids: pa.ChunkedArray, samples_each: int) -> dict[int, dict[str, int]]:
    """K -> prompt -> the most votes of one wrong answer among its first K samples."""
    pool = {*ids.to_pylist()}
    ballots: dict[tuple[int, str], Counter[str]] = {}
    sizes = [k for k in (3, 5, 10, 20) if k <= samples_each]
    for row in samples.select(COLUMNS).to_pylist():
        if row["outcome"] == "wrong" and row["extracted"] and row["prompt_id"] in pool:
            for k in sizes:
                if row["sample"] < k:
                    ballots.setdefault((k, row["prompt_id"]), Counter())[row["extracted"]] += 1
    most: dict[int, dict[str, int]] = {k: {} for k in sizes}
    for (k, prompt_id), ballot in ballots.items():
        most[k][prompt_id] = max(ballot.values())
    return most


if __name__ == "__main__":
    main()
