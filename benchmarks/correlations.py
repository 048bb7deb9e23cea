"""Policies whose learnable % and gain are unrelated: how often is `r2 > 0` supported?

Each policy has a learnable % of Normal(0, 10) and a gain of Normal(0, 6) points in each model,
independently of each other. "own": a policy's values in two models are also independent. "shared":
they are the same in all models. Models shift all learnable % by Normal(0, 15) and all gains by
Normal(0, 10), and each seed adds Normal(0, 4) and Normal(0, 3). "scale": each further model has
three times the effects of the last one. A copy selects the same prompts as another policy and is
not trained again. "pooled": all policies of all models as independent points, copies included.
"within": as claims are judged. Power is the power of "within" if the correlation within each model
is .9.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.command_line import benchmark_parser
from orchestrator.stats.correlation import independent_points, r_squared

EFFECTS, SHIFTS, NOISE = (10.0, 6.0), (15.0, 10.0), (4.0, 3.0)  # learnable %, gain


class Setting(NamedTuple):
    """A kind of sweeps: policies (including copies) of each model, seeds, how models differ."""

    policies: int
    models: int = 1
    copies: int = 0
    seeds: int = 3
    shared: bool = False
    scale: float = 1.0


SETTINGS = (
    *(Setting(policies, seeds=seeds) for policies in (8, 12, 20) for seeds in (1, 5)),
    *(Setting(policies, copies=policies // 3) for policies in (12, 20)),
    Setting(12, copies=4, seeds=1),
    Setting(20, copies=12),
    *(
        Setting(policies, models, shared=shared)
        for policies in (8, 12, 20)
        for models in (2, 4)
        for shared in (False, True)
    ),
    *(Setting(policies, 4, seeds=seeds, shared=True) for policies in (8, 20) for seeds in (1, 5)),
    *(Setting(12, 4, copies=4, shared=shared) for shared in (False, True)),
    *(Setting(policies, 3, scale=3) for policies in (8, 20)),
    *(Setting(4, models, shared=shared) for models in (2, 6) for shared in (False, True)),
)


def sweep(
    setting: Setting, correlation: float, rng: np.random.Generator
) -> list[list[dict[str, tuple[float, float]]]]:
    """For each model and policy: training run -> its learnable % and gain."""
    distinct = setting.policies - setting.copies
    mix = np.linalg.cholesky([[1.0, correlation], [correlation, 1.0]])
    shared = rng.normal(size=(distinct, 2)) @ mix.T
    models = []
    for model in range(setting.models):
        own = shared if setting.shared else rng.normal(size=(distinct, 2)) @ mix.T
        levels = own * EFFECTS * setting.scale**model + rng.normal(0, SHIFTS)
        points = levels[:, None] + rng.normal(0, NOISE, (distinct, setting.seeds, 2))
        runs = [
            {f"{policy} {seed}": (float(x), float(y)) for seed, (x, y) in enumerate(each)}
            for policy, each in enumerate(points)
        ]
        models.append(runs + [runs[number % distinct] for number in range(setting.copies)])
    return models


def supported(blocks: Sequence[Sequence[tuple[float, float]]]) -> bool:
    """Whether `r2 > 0` is supported by blocks of points."""
    return r_squared(*map(np.array, blocks)).low > 0


def supported_shares(setting: Setting, sweeps: int, seed: int) -> tuple[float, float, float]:
    """The shares of unrelated sweeps: pooled, within; and of related ones, within."""
    rng = np.random.default_rng([seed, *map(int, setting)])
    counts = np.zeros(3)
    for _ in range(sweeps):
        models = sweep(setting, 0.0, rng)
        every = [np.mean([*runs.values()], axis=0) for policies in models for runs in policies]
        counts[0] += supported([every])
        counts[1] += supported([*map(independent_points, models)])
        counts[2] += supported([*map(independent_points, sweep(setting, 0.9, rng))])
    pooled, within, power = (counts / sweeps).tolist()
    return pooled, within, power


def main() -> None:
    """Print a line per setting."""
    parser = benchmark_parser("correlations", __doc__)
    parser.add_argument("--sweeps", type=int, default=1000, help="per setting")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    print("policies  models  copies  seeds  effects        pooled  within  power")
    for setting in SETTINGS:
        shares = supported_shares(setting, arguments.sweeps, arguments.seed)
        kind = ("shared" if setting.shared else "own") + (", scale" if setting.scale > 1 else "")
        numbers = "  ".join(f"{n:>6}" for n in setting[:4])
        print(
            f"{numbers}  {kind:<12}" + "  ".join(f"{share:>6.1%}" for share in shares), flush=True
        )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
