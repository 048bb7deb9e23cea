"""`decile replay`: recordings in files, and the policies to ask."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.evaluation.recording import Recording
from orchestrator.evaluation.replay import REFERENCE, Replay
from orchestrator.optional.exchange.recordings import read_probe, read_recordings
from orchestrator.plugins.counts import counted
from orchestrator.selection.budgets import size_of
from orchestrator.storage.errors import UserError
from policies import Policy, PolicyError, find_policy, get_policy, policy_names
from policies.online import is_online


def replay_logs(
    logs: Sequence[str],
    written: Sequence[str | Mapping[str, Any]] = (),
    budget: str = "0.1",
    looks: int = 1,
    probe: str | None = None,
    correct: str | None = None,
) -> list[Replay]:
    """The runs of these logs, with what each policy would have chosen.

    written: policies, each a name or {name: options}; none: all that can choose by such a log.
    Raises UserError, TaskError or PolicyError.
    """
    policies = [*map(policy_of, written)] or default_policies()
    if all(policy.name != REFERENCE for policy in policies):
        policies.append(policy_of(REFERENCE))
    replays = []
    for run in (run for path in logs for run in read_recordings(path, correct)):
        check_visits(run, looks if probe is None else 0)
        table = None if probe is None else read_probe(probe, run)
        size = size_of(budget, len(run.prompt_ids))
        if not 0 < size <= len(run.prompt_ids):
            raise UserError(
                f"--budget {budget}: {counted(size, 'prompt')} of the "
                f"{len(run.prompt_ids):,} of {run.name}: write a share such as 0.1, or a count"
            )
        replay = Replay(run, policies, size, looks, table)
        if not replay.replayed or (written and replay.refused):
            raise PolicyError(next(iter(replay.refused.values())))
        replays.append(replay)
    return replays


def check_visits(run: Recording, looks: int) -> None:
    """Raise UserError unless prompts have visits after those that a choice rests on."""
    if run.visits > looks:
        return
    later = int((run.marked > 0).sum(axis=1).max(initial=0))
    advice = "write a log of more epochs"
    if run.visits > 1:
        advice = f"write --visits {run.visits - 1} or less, or {advice}"
    raise UserError(
        f"{run.name}: {counted(run.visits, 'visit')} that at least 90 % of "
        f"{counted(len(run.prompt_ids), 'prompt')} have (at most {later} of one), and the choice "
        f"rests on {looks}: {advice}"
    )


def policy_of(written: str | Mapping[str, Any]) -> Policy:
    """The static policy that a name, or {name: options}, describes. Raises PolicyError."""
    named = {written: {}} if isinstance(written, str) else written
    is_entry = isinstance(named, Mapping) and len(named) == 1
    name, options = next(iter(named.items())) if is_entry else ("", {})
    if not name or not isinstance(name, str) or not isinstance(options or {}, Mapping):
        raise PolicyError(
            f"policy {written!r:.80}: write a name, or one with its options, such as "
            "'band: {low: 0.2, high: 0.8}'"
        )
    options = dict(options or {})
    texts = [f"{option} {value}" for option, value in options.items()]
    return Policy(" ".join([name, *texts]), get_policy(name, **options))


def default_policies() -> list[Policy]:
    """Every static policy that needs no option, the reference first."""
    policies = []
    for name in policy_names():
        if not is_online(find_policy(name)):
            try:
                policies.append(Policy(name, get_policy(name)))
            except PolicyError:  # it needs options, which nobody has written
                continue
    return policies
