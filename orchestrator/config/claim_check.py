"""Looks up the names of a claim in its experiment, and checks what will be measured. Pure.

A claim is checked before a sweep runs, so that no sweep ends without what its claims need.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from orchestrator.config.axes import value_text
from orchestrator.config.claims import (
    BASE,
    BASE_SIDE,
    CORRELATION,
    AxisValues,
    Claim,
    ClaimError,
    parse_claim,
    side_text,
)
from orchestrator.config.corrections import one_of
from orchestrator.config.experiment import Experiment
from orchestrator.storage.errors import shortened

# The axes whose values may stand alone, in the order in which a name is looked up.
_IN_SIDES = ("policy", "dataset", "model")
_IN_FOR = ("model", "policy", "dataset")


def resolved_claim(text: str, experiment: Experiment) -> Claim:
    """Parse a claim of an experiment and look up its names. Raises ClaimError.

    Every axis is named in the result and has the grid's value. `on` a data set of the grid fixes
    the training set, unless the claim does: each cell is tested on its own set then.
    """
    claim = parse_claim(text)
    grid = experiment.grid
    axes: dict[str, Sequence[Any]] = {
        "model": grid.model,
        "dataset": grid.dataset,
        "policy": grid.policy,
        "probe_seed": grid.probe_seed or [experiment.probe.seed],
        **grid.swept,
    }
    a, b = (
        BASE_SIDE
        if side == (("", BASE),) and BASE not in grid.policy
        else _named(text, side, axes, _IN_SIDES)
        for side in (claim.a, claim.b)
    )
    claim = replace(claim, a=a, b=b, only=_named(text, claim.only, axes, _IN_FOR))
    _check_sides(claim)
    claim = _on_its_training_set(claim, axes)
    _check_clauses(claim)
    for dataset, variant in _measured(claim, experiment):
        _check_measured(claim, dataset, variant)
    return claim


def _named(
    text: str, side: AxisValues, axes: Mapping[str, Sequence[Any]], order: Sequence[str]
) -> AxisValues:
    """The axes and values of the grid that a side or `for` names."""
    named: dict[str, Any] = {}
    for axis, word in side:
        if not axis:
            axis = next((each for each in order if word in axes[each]), "")
            if not axis:
                known = [name for each in order for name in axes[each]]
                raise ClaimError(
                    text,
                    f"unknown policy, dataset or model {word!r}: write {one_of(known, word)}",
                )
        elif axis == "seed":
            raise ClaimError(text, f"claims are judged over all seeds: remove seed={word}")
        elif axis not in axes:
            raise ClaimError(text, f"unknown axis {axis!r}: write {one_of([*axes], axis)}")
        values = [value for value in axes[axis] if _is_value(word, value)]
        if not values:
            known = [value_text(value) for value in axes[axis]]
            raise ClaimError(text, f"{axis} has no value {word!r}: write {one_of(known, word)}")
        if axis in named:
            raise ClaimError(text, f"{axis} is set twice: remove {word!r}")
        named[axis] = values[0]
    return tuple(sorted(named.items(), key=itemgetter(0)))


def _is_value(word: str, value: Any) -> bool:
    """Whether a word of a claim means a value of the grid: as the report writes it, or the number.

    Spaces and quotes inside a list do not matter.
    """
    try:
        if not isinstance(value, bool) and float(word) == float(value):
            return True
    except (TypeError, ValueError):
        pass
    plain, other = ("".join(c for c in t if c not in " '\"") for t in (word, value_text(value)))
    return plain == other


def _check_sides(claim: Claim) -> None:
    """Both sides fix the same axes, with different values, and `for` fixes others."""
    if claim.metric == CORRELATION:
        return
    names = [side_text(side) for side in (claim.a, claim.b)]
    if claim.a == claim.b:
        raise ClaimError(claim.text, f"it compares {names[0]} with itself: write two sides")
    sides = [{axis for axis, _ in side} for side in (claim.a, claim.b)]
    if BASE_SIDE not in (claim.a, claim.b) and sides[0] != sides[1]:
        missing = ", ".join(sorted(sides[0] ^ sides[1]))
        raise ClaimError(
            claim.text,
            f"both sides must set the same axes, and only one sets {missing}: write it on both",
        )
    if both := claim.axes & {axis for axis, _ in claim.only}:
        axis = min(both)
        raise ClaimError(claim.text, f"the sides set {axis}: remove it from 'for'")


def _on_its_training_set(claim: Claim, axes: Mapping[str, Sequence[Any]]) -> Claim:
    """With `on` a data set of the grid, the training set, unless the claim sets one."""
    fixed = claim.axes | {axis for axis, _ in claim.only}
    if claim.test_set is None:
        if "dataset" in claim.axes and claim.metric != "learnable":
            raise ClaimError(
                claim.text,
                "cells of different data sets are compared on one test set: write on SET",
            )
        return claim
    if claim.metric in ("learnable", CORRELATION):  # `on` is the training set
        if "dataset" in fixed:
            raise ClaimError(
                claim.text,
                f"{claim.metric} has no test set, and the claim sets the training set: "
                f"remove 'on {claim.test_set}'",
            )
        if claim.test_set not in axes["dataset"]:
            raise ClaimError(
                claim.text,
                f"unknown training set {claim.test_set!r}: write "
                f"{one_of([*axes['dataset']], claim.test_set)}",
            )
        return replace(claim, only=_with_dataset(claim), test_set=None)
    if claim.test_set in axes["dataset"] and "dataset" not in fixed:
        return replace(claim, only=_with_dataset(claim))
    return claim


def _with_dataset(claim: Claim) -> AxisValues:
    return tuple(sorted((*claim.only, ("dataset", claim.test_set)), key=itemgetter(0)))


def _check_clauses(claim: Claim) -> None:
    """Clauses that do not fit the metric."""
    if claim.metric in ("learnable", CORRELATION):
        clauses: dict[str, Any] = {"in tier": claim.tier, "over": claim.over}
        if claim.metric == CORRELATION:
            clauses["at"] = claim.at
        if clause := next((name for name, value in clauses.items() if value), None):
            raise ClaimError(
                claim.text,
                f"{claim.metric} is of whole training runs: remove {clause!r}, or write another "
                "metric",
            )
    if claim.metric == "learnable" and BASE_SIDE in (claim.a, claim.b):
        raise ClaimError(claim.text, "the base model trains on nothing: write a policy, not base")
    if claim.at and claim.over:
        raise ClaimError(claim.text, "it has both 'at' and 'over': remove one")


def _measured(claim: Claim, experiment: Experiment) -> Iterator[tuple[str, Experiment]]:
    """The training set and the settings of every kind of cell that a claim is about."""
    allowed: dict[str, list[str]] = {}
    for axis, value in (*claim.a, *claim.b, *claim.only):
        allowed.setdefault(axis, []).append(repr(value))
    for swept, variant in experiment.variants:
        if all(repr(value) in allowed.get(axis, [repr(value)]) for axis, value in swept.items()):
            for dataset in experiment.grid.dataset:
                if repr(dataset) in allowed.get("dataset", [repr(dataset)]):
                    yield dataset, variant


def _check_measured(claim: Claim, dataset: str, experiment: Experiment) -> None:
    """The cells of one training set measure what a claim needs."""
    evaluate, updates = experiment.evaluate, experiment.full_grpo()["max_steps"]
    if claim.metric in ("learnable", CORRELATION):
        own, test_set = False, ""
    else:
        test_set = claim.test_set or dataset
        own = test_set == dataset
        if not own and test_set not in evaluate.ood:
            known = [*dict.fromkeys([dataset, *evaluate.ood])]
            raise ClaimError(
                claim.text,
                f"cells trained on {dataset} are not tested on {shortened(test_set)}: write "
                f"{one_of(known, test_set)}, or add it to evaluate.ood",
            )
        samples = evaluate.samples if own else evaluate.ood_samples or evaluate.samples
        if claim.pass_at is not None and claim.pass_at > samples:
            setting = "samples" if own else "ood_samples"
            raise ClaimError(
                claim.text,
                f"{claim.metric} needs {claim.pass_at} samples per question of {test_set}, not "
                f"{samples}: write evaluate: {{{setting}: {claim.pass_at}}}, or a smaller k",
            )
        if not own and (claim.over or claim.at and claim.at != ("updates", updates)):
            raise ClaimError(
                claim.text,
                f"{test_set} is tested before and after training only: remove "
                f"{'over' if claim.over else 'at'!r}, or write on {dataset}",
            )
    between = 0 < evaluate.every < updates
    if claim.over and not between:
        raise ClaimError(
            claim.text, "no evaluation during training: write evaluate: {every: N} below max_steps"
        )
    if claim.at:
        _check_reading(claim, experiment, updates, evaluated=own)


def _check_reading(claim: Claim, experiment: Experiment, updates: int, *, evaluated: bool) -> None:
    """A cell reaches the point at which a claim is read, and is evaluated there."""
    assert claim.at is not None
    cost, amount = claim.at
    if cost != "updates":
        return  # `orchestrator.planning.claims` knows what a cell can cost
    if amount > updates:
        raise ClaimError(
            claim.text,
            f"a cell has {updates:,} updates, not {amount:,.15g}: write at most {updates:,}",
        )
    every = experiment.evaluate.every
    if not evaluated:
        return
    if amount != updates and (not every or amount % every):
        before = int(amount) // every * every if every else 0
        near = sorted({u for u in (before, before + every, updates) if 0 < u <= updates})
        raise ClaimError(
            claim.text,
            f"no evaluation after update {amount:.15g}: write "
            f"{' or '.join(f'at update {u}' for u in near)}, or another evaluate.every",
        )
