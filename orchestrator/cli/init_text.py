"""What `decile init` prints about the data, the model and the machine."""

import re
import shlex
from pathlib import Path

from orchestrator.cli.init_model import ModelChoice
from orchestrator.cli.init_plan import Site
from orchestrator.config.starter import EXPERIMENT, Starter
from orchestrator.cost.fit import GIB
from orchestrator.cost.sizing import Sizing
from orchestrator.difficulty.probe_table import table_file
from orchestrator.planning.plan import Plan
from orchestrator.report.layout import output_width, wrapped
from orchestrator.storage.errors import shortened
from tasks.file_survey import FileSurvey

_ROWS = 3  # rows listed that cannot be used
_COLUMNS = 8
_PLURAL = re.compile(r"s\b")


def survey_lines(path: str, survey: FileSurvey) -> list[str]:
    """What a file holds."""
    names = [f"{name!r:.40}" for name in list(survey.columns)[:_COLUMNS]]
    more = len(survey.columns) - len(names)
    names += [f"{more} more"] if more else []
    head = f"{_name(path)}: {_count(survey.rows, 'row')}, columns {', '.join(names)}"
    lines = [wrapped(head, output_width())]
    questions = [f"{survey.question!r:.40}", f"up to {survey.longest_question:,} characters"]
    if survey.repeated:
        questions.append(f"{survey.repeated:,} repeated")
    if survey.contradicted:
        questions.append(f"{survey.contradicted:,} with several answers")
    lines.append(_line("questions", ", ".join(questions)))
    forms = ", ".join(
        f"{count:,} {form if count > 1 else _PLURAL.sub('', form, count=1)}"
        for form, count in survey.forms.items()
    )
    worked = f"; {_count(survey.worked, 'worked solution')} with the answer at the end"
    worked = worked if survey.worked else ""
    lines.append(_line("answers", f"{survey.answer!r:.40}: {forms or 'none'}{worked}"))
    counts = f"{survey.valid:,} of {survey.rows:,} gold answers marked correct"
    lines.append(_line("marker", f"{survey.marker}: {counts}"))
    for place, question, answer in survey.invalid[:_ROWS]:
        lines.append(_line("", f"dropped: {_name(place)}, {_problem(question, answer)}"))
    if (rest := len(survey.invalid) - _ROWS) > 0:
        lines.append(_line("", f"dropped: {rest:,} more"))
    if survey.tier:
        lines.append(_line("tiers", f"{survey.tier!r:.40}"))
    return lines


def _problem(question: str, answer: str) -> str:
    if not question:
        return "no question"
    return f"answer {shortened(answer, 50)}" if answer else "no answer"


def plan_lines(
    plan: Plan, starter: Starter, model: ModelChoice, site: Site, sizing: Sizing | None
) -> list[str]:
    """The split, the model and how the plan fits the machine."""
    pool = plan.pools[starter.dataset]
    split = f"{len(pool.train):,} training prompts, {len(pool.test):,} test questions"
    split += " (held out)" if "test_share" in starter.options else ""
    size = plan.cells[0].size
    millions = model.shape.parameters / 1e6 if model.shape else 0.0
    large = f"{millions / 1e3:.3g} billion" if millions >= 1e3 else f"{millions:.3g} million"
    gpus = _count(site.gpus, "GPU") if site.gpus else "no GPU"
    return [
        _line("pool", split),
        *(_line("", note) for note in pool.notes),
        _line("budget", f"{starter.budget:.0%} of the pool: {size} prompts per policy"),
        _line("model", f"{starter.model}, {large} parameters" if millions else starter.model),
        _line(
            "machine",
            f"{_count(site.cpus, 'CPU')}, {gpus}",
        ),
        *(_line("", warning) for warning in _gpu_lines(starter, site, sizing)),
    ]


def _gpu_lines(starter: Starter, site: Site, sizing: Sizing | None) -> list[str]:
    """How a trial fits the GPU, if it needs one."""
    if not starter.gpus:
        return []
    lines = []
    if not site.gpus:
        lines.append(f"a trial needs a GPU; estimates assume {site.device.name}")
    elif not site.recognized:
        lines.append(f"the GPU's memory is not known; estimates assume {site.device.name}")
    if sizing is None:
        lines.append("the model's size is not known here, so its memory is not estimated")
    elif sizing.fits:
        in_4bit = " in 4 bits" if sizing.load_in_4bit else ""
        lines.append(f"a trial takes about {sizing.peak / GIB:.0f} GiB{in_4bit} (estimated)")
    else:
        lines.append(
            f"a trial takes about {sizing.peak / GIB:.0f} GiB, even in 4 bits: more than "
            f"{site.device.name} has; use a smaller model or larger GPU"
        )
    return lines


def next_lines(file: Path, plan: Plan) -> list[str]:
    """The commands that follow."""
    name = f"{shlex.quote(str(file))} -e {EXPERIMENT}"
    table = table_file(plan, plan.cells[0].probe, Path(f"probe-{EXPERIMENT}.html"))
    return [
        "",
        f"Wrote {_name(str(file))}. Next:",
        f"  decile plan {name}   # what would run, and how long it takes",
        f"  decile probe {name}  # how hard each prompt is",
        f"  decile select --probe {table} \\",
        f"      --policy hard --budget {plan.experiment.budget:g} --out hard.parquet",
        f"  decile run {name}    # train with every policy and compare",
    ]


def _line(label: str, text: str) -> str:
    return wrapped(f"  {label:<10} {text}", output_width(), 11 if label else 0)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _name(path: str) -> str:
    """A path on one line."""
    return path if path.isprintable() else repr(path)
