"""Which planted wrong golds the samples of a probe reveal: precision and recall by K and share.

Reads the probes of an experiment with `label_noise`. A gold is disputed if, among its prompt's
first K completions, at least three agree on a different answer, and these are at least this share
of the completions with an answer. A planted error that no completion contradicts cannot be found;
an answer that a model often gets wrong looks like one. Expected: the precision that Decile expects
without knowing the planted errors. The last column shows whether disputed golds are suspected, so
that policies leave them out.
"""

from pathlib import Path

from benchmarks.command_line import benchmark_parser
from orchestrator.config.catalog import load_config
from orchestrator.difficulty.answers import votes_of
from orchestrator.difficulty.disputed import LEAST, SHARE, disputed_golds
from orchestrator.difficulty.table import difficulty
from orchestrator.planning.plan import make_plan
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.store import Store

KS = (3, 5, 10, 20, 50)
SHARES = (0.5, SHARE, 0.8)


def main() -> None:
    """Print a table for each probe with label noise."""
    parser = benchmark_parser("suspects", __doc__)
    parser.add_argument("file", type=Path, help="an experiments.yaml whose probes are stored")
    parser.add_argument("-e", dest="experiment", required=True, help="its experiment")
    parser.add_argument("--storage", default="runs", help="the storage (default runs)")
    arguments = parser.parse_args()
    plan = make_plan(load_config(arguments.file), arguments.experiment)
    for spec in plan.probes:
        if spec.split == "test":
            continue
        pool, most = plan.pool(spec), spec.settings.samples
        folder = ProbeFolder(Store(arguments.storage), spec, pool.train, pool.task)
        samples = folder.samples(("outcome", "extracted"))
        correct = sum(outcome == "correct" for outcome in samples["outcome"].to_pylist())
        accuracy = f"{100 * correct / samples.num_rows:.1f} % of the samples are correct"
        planted = pool.mislabeled
        print(
            f"{spec.model.name} on {spec.dataset.variant_key}: {len(planted)} planted; {accuracy}"
        )
        head = ("disputed", "planted", "precision", "expected", "recall", "suspected")
        print(f"{'K':>4}{'share':>7}{''.join(f'{name:>11}' for name in head)}")
        for k in sorted({k for k in KS if LEAST <= k <= most} | {most}):
            first = samples.filter([index < k for index in samples["sample"].to_pylist()])
            table = difficulty(first.select(["prompt_id", "outcome"]))
            votes = votes_of(first, table, pool.task)
            for share in SHARES:
                agreed, ids = (
                    disputed_golds(votes, table, share=share),
                    table["prompt_id"].to_pylist(),
                )
                doubted = {ids[row] for row in agreed.disputed.nonzero()[0]}
                hits = len(doubted & planted)
                values = (
                    *(len(doubted), hits, f"{hits / len(doubted):.2f}" if doubted else "–"),
                    *(f"{agreed.precision:.2f}", f"{hits / max(1, len(planted)):.2f}"),
                    "yes" if agreed.credible else "no",
                )
                print(f"{k:>4}{share:>7.2f}{''.join(f'{value:>11}' for value in values)}")


if __name__ == "__main__":
    main()
