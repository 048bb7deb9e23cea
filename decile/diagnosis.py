"""`decile.diagnose`: finds problems in GRPO runs of any trainer, as `decile diagnose` does."""

from pathlib import Path
from typing import Any

from decile.errors import as_user_error
from orchestrator.evaluation import diagnosis
from orchestrator.optional.exchange.run_logs import read_logs
from orchestrator.report.html_pages import PAGES, section_html, write_page
from orchestrator.report.sections.diagnosis import checks_line, diagnosis_page, terminal_diagnosis
from orchestrator.storage.local_files import check_output


class Diagnosis:
    """The runs of a log and their problems.

    `runs` holds one entry per run, with its `facts` and `findings`.
    """

    def __init__(self, runs: list[diagnosis.Diagnosis]) -> None:
        self.runs = runs

    def __repr__(self) -> str:
        return f"{terminal_diagnosis(self.runs)}\n{checks_line(self.runs)}"

    def _repr_html_(self) -> str:
        return "".join(map(section_html, diagnosis_page(self.runs).sections[:2]))

    @property
    def bad(self) -> bool:
        """Whether a run has a severe problem."""
        return any(run.bad for run in self.runs)

    def to_dict(self) -> list[dict[str, Any]]:
        """What `decile diagnose --json` prints under `runs`, one entry per run."""
        return [run.to_dict() for run in self.runs]

    def save(self, page: str | Path) -> Path:
        """Write the HTML page. Raises UserError if it cannot be written."""
        check_output(page, PAGES)
        write_page(diagnosis_page(self.runs), Path(page))
        return Path(page)


@as_user_error()
def diagnose(*logs: str | Path, correct: str | None = None) -> Diagnosis:
    """Find problems in the runs of these logs (docs/measuring.md).

    `correct` names the reward function or column of 0 and 1 that marks correct completions. Raises
    UserError if a path has no log of a GRPO run.
    """
    read = [log for path in logs for log in read_logs(str(path), correct)]
    return Diagnosis([diagnosis.diagnose(log) for log in read])
