"""`decile.replay`: the prompts that each policy would have chosen in recorded runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decile.errors import as_user_error
from orchestrator.evaluation import replay as replays
from orchestrator.optional.exchange.replay_files import replay_logs
from orchestrator.report.html_pages import PAGES, section_html, write_page
from orchestrator.report.sections.replay import replay_page, terminal_replay
from orchestrator.storage.local_files import check_output
from policies import PolicyError


class Replay:
    """Recorded runs with what each policy would have chosen; `runs` holds one entry per run."""

    def __init__(self, runs: list[replays.Replay]) -> None:
        self.runs = runs

    def __repr__(self) -> str:
        return terminal_replay(self.runs)

    def _repr_html_(self) -> str:
        return "".join(map(section_html, replay_page(self.runs).sections))

    def to_dict(self) -> list[dict[str, Any]]:
        """What `decile replay --json` prints under `runs`, one entry per run."""
        return [run.to_dict() for run in self.runs]

    def save(self, page: str | Path) -> Path:
        """Write the HTML page. Raises UserError if it cannot be written."""
        check_output(page, PAGES)
        write_page(replay_page(self.runs), Path(page))
        return Path(page)


@as_user_error(PolicyError)
def replay(
    *logs: str | Path,
    policies: Sequence[str | Mapping[str, Any]] = (),
    budget: float | int = 0.1,
    visits: int = 1,
    probe: str | Path | None = None,
    correct: str | None = None,
    online: bool = False,
) -> Replay:
    """What each policy would have chosen in the runs of these logs (docs/measuring.md).

    policies: names, or {name: options}; by default all static policies that read pass rates.
    online: also all policies that choose during training. budget: a share of the prompts below 1,
    or a count. The choice is based on the first `visits`, or on `probe`, a difficulty table.
    `correct`: as for `diagnose`. Raises UserError if a path has no log of a GRPO run.
    """
    runs = replay_logs(
        [*map(str, logs)],
        policies,
        str(budget),
        visits,
        None if probe is None else str(probe),
        correct,
        online=online,
    )
    return Replay(runs)
