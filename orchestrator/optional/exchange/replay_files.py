"""`decile replay`: recordings in files, and the policies to replay."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from orchestrator.evaluation.online_replay import Build, OnlineReplay
from orchestrator.evaluation.recording import Recording
from orchestrator.evaluation.replay import REFERENCE, Replay
from orchestrator.optional.exchange.recordings import read_probe, read_recordings
from orchestrator.plugins.counts import counted
from orchestrator.selection.budgets import check_size, size_of
from orchestrator.storage.errors import UserError
from policies import (
    BuiltOnlinePolicy,
    Policy,
    PolicyError,
    find_policy,
    get_online_policy,
    get_policy,
    policy_names,
)
from policies.online import is_online


def replay_logs(
    logs: Sequence[str],
    written: Sequence[str | Mapping[str, Any]] = (),
    budget: str = "0.1",
    looks: int = 1,
    probe: str | None = None,
    correct: str | None = None,
    *,
    online: bool = False,
) -> list[Replay]:
    """The runs of these logs, with what each policy would have chosen.

    written: policies, each a name or {name: options}; empty: all static policies that can choose by
    such a log. online: also all online policies. Raises UserError, TaskError or PolicyError.
    """
    named = [*map(policy_parts_of, written)]
    static = [policy_of(*parts) for parts in named if not is_online(find_policy(parts[0]))]
    during = [parts for parts in named if is_online(find_policy(parts[0]))]
    if online:
        during += [(name, {}) for name in policy_names() if is_online(find_policy(name))]
    builds = {title(*parts): online_policy(*parts) for parts in during}
    policies = static or default_policies()
    if all(policy.name != REFERENCE for policy in policies):
        policies.append(policy_of(REFERENCE, {}))
    replays = []
    for run in (run for path in logs for run in read_recordings(path, correct)):
        table = None
        if probe is not None:
            run, table = probed_part(run, probe)
        run = with_late_visits(run)
        check_visits(run, looks if probe is None else 0)
        size = size_of(budget, len(run.prompt_ids))
        rated = "" if probe is None else f" with a pass rate in {probe}"
        check_size(budget, size, len(run.prompt_ids), f"of {run.name}{rated}")
        chooses = OnlineReplay(run, builds, size, looks) if builds else None
        replay = Replay(run, policies, size, looks, table, chooses)
        if not replay.replayed or (static and replay.refused):
            raise PolicyError(next(iter(replay.refused.values())))
        replays.append(replay)
    return replays


def probed_part(run: Recording, probe: str) -> tuple[Recording, pa.Table]:
    """The prompts with a pass rate in a probe, and their rows of the probe.

    A policy's choice among the others is unknown, so the pool excludes them.
    """
    table = read_probe(probe, run)
    known = table["pass_rate"].is_valid().to_numpy()
    if known.all():
        return run, table
    note = (
        f"{probe} has no pass rate of {counted(int((~known).sum()), 'prompt')} of the "
        f"{len(known):,}; they are left out"
    )
    rows = run.rows
    if groups := run.groups_in_rows(~known):
        reasons = {**rows.left_out, "of a prompt that the probe lacks": groups}
        rows = replace(rows, left_out=reasons)
    part = run.part(known.nonzero()[0])
    return replace(part, notes=(*run.notes, note), rows=rows), table.filter(
        table["pass_rate"].is_valid()
    )


def with_late_visits(run: Recording) -> Recording:
    """The recording, with a note on visits that do not count because too few prompts have them."""
    late = int((run.marked[:, run.visits :] > 0).sum())
    if not late:
        return run
    why = f"of visit {run.visits + 1} or later, which fewer than 90 % of the prompts have"
    if rows := run.groups_in_rows(slice(None), run.visits):
        left_out = {**run.rows.left_out, why: rows}
        return replace(run, rows=replace(run.rows, left_out=left_out))
    return replace(run, notes=(*run.notes, f"{counted(late, 'group')} not counted: {why}"))


def check_visits(run: Recording, looks: int) -> None:
    """Raise UserError unless prompts have visits after those that a choice is based on."""
    if run.visits > looks:
        return
    present = [*(run.marked > 0).mean(axis=0).tolist(), 0.0]
    lacking = f"visit {run.visits + 1} is missing for {100 * (1 - present[run.visits]):.0f} %"
    advice = "leave out prompts that are visited less often, or write a log of more epochs"
    if run.visits > 1:
        advice = f"write --visits {run.visits - 1} or less, or {advice}"
    raise UserError(
        f"{run.name}: {counted(run.visits, 'visit')} that at least 90 % of "
        f"{counted(len(run.prompt_ids), 'prompt')} have, and the choice rests on {looks} ({lacking}"
        f"): {advice}"
    )


def policy_parts_of(written: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the options of a policy as a user writes it. Raises PolicyError."""
    named = {written: {}} if isinstance(written, str) else written
    is_entry = isinstance(named, Mapping) and len(named) == 1
    name, options = next(iter(named.items())) if is_entry else ("", {})
    if not name or not isinstance(name, str) or not isinstance(options or {}, Mapping):
        raise PolicyError(
            f"policy {written!r:.80}: write a name, or one with its options, such as "
            "'band: {low: 0.2, high: 0.8}'"
        )
    return name, dict(options or {})


def title(name: str, options: Mapping[str, Any]) -> str:
    """A policy with its options, as shown in tables."""
    return " ".join([name, *(f"{option} {value}" for option, value in options.items())])


def policy_of(name: str, options: Mapping[str, Any]) -> Policy:
    """The static policy of that name. Raises PolicyError."""
    return Policy(title(name, options), get_policy(name, **options))


def online_policy(name: str, options: Mapping[str, Any]) -> Build:
    """A function that builds the online policy of that name; tried once. Raises PolicyError."""

    def build() -> BuiltOnlinePolicy:
        return BuiltOnlinePolicy(title(name, options), get_online_policy(name, **options))

    build()
    return build


def default_policies() -> list[Policy]:
    """Every static policy that needs no option, the reference first."""
    policies = []
    for name in policy_names():
        if not is_online(find_policy(name)):
            try:
                policies.append(policy_of(name, {}))
            except PolicyError:  # it needs options, which were not given
                continue
    return policies
