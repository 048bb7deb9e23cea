"""Evaluates an embedded model and writes the results as a page of the documentation."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.embedded.lesson import Lesson
from benchmarks.embedded.pretrain import BATCH
from orchestrator.difficulty.outcomes import pass_rate_histogram
from orchestrator.difficulty.table import difficulty
from orchestrator.evaluation.metrics import accuracy
from orchestrator.probing.samples import sample_and_mark
from orchestrator.report.sections.axes import new_axes
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler
from tasks import OUTCOMES, Prompt, Task
from tasks.shuffled_objects import ShuffledObjects

SAMPLES = 10
SETTINGS = SamplingSettings(max_completion_length=96)


def write_page(lesson: Lesson[Any], model: ModelSource, docs: Path, bbh: Path | None) -> None:
    """Evaluate the model and write the lesson's page and figures."""
    sampler = TransformersSampler.load(model)
    task = lesson.task
    pool, test = task.train(), task.test()
    test_samples = _draw(sampler, task, test, SAMPLES)
    sections = [
        _about(lesson, sampler, model),
        _loss(docs / lesson.figures),
        _pool(docs / lesson.figures, pool, _draw(sampler, task, pool, SAMPLES)),
        f"{_test(lesson, test, test_samples)}\n\n{_styles(lesson, test_samples)}",
        _lengths(task, sampler, pool),
    ]
    if isinstance(task, ShuffledObjects):
        sections.append(_benchmark(lesson, sampler, bbh))
    (docs / lesson.page).write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _draw(
    sampler: TransformersSampler, task: Task, prompts: Sequence[Prompt], samples: int
) -> pa.Table:
    requests = [(prompt, range(samples)) for prompt in prompts]
    return sample_and_mark(sampler, task, requests, SETTINGS)


def _about(lesson: Lesson[Any], sampler: TransformersSampler, model: ModelSource) -> str:
    count = sum(p.numel() for p in sampler.model.parameters())
    size = sum(file.stat().st_size for file in Path(model.location).iterdir()) / 1e6
    return (
        f"# The embedded model `{model.name}`\n\n"
        f"`{model.name}` is a small language model that ships with Decile, so that a sweep runs "
        "without a GPU or network access. Declare it in `experiments.yaml` as "
        f"`{{embedded: {model.name}}}`. It is trained from a fixed seed on generated text only, "
        "never on benchmark items. To train it again and rewrite this page, run "
        f"`python -m benchmarks.embedded.recipe --model {model.name}`.\n\n"
        "## Architecture and training\n\n"
        f"`{model.name}` is a Llama decoder with {count:,} parameters in float32 and a byte-level "
        f"BPE vocabulary of {len(sampler.tokenizer):,} tokens; its files take {size:.1f} MB. "
        f"{lesson.about} Training runs on one thread, so that the same versions of the libraries "
        "on the same type of processor give the same weights.\n\n"
        "All results below use temperature 1 and at most 96 new tokens."
    )


def _loss(figures: Path) -> str:
    """The loss curve as a figure; `figures` is the common prefix of this model's files."""
    file, image = Path(f"{figures}-loss.csv"), Path(f"{figures}-loss.png")
    if not file.is_file():
        return "## Training loss\n\nNot recorded."
    with file.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    figure, axes = new_axes()
    for stage in dict.fromkeys(row["stage"] for row in rows):
        part = [row for row in rows if row["stage"] == stage]
        axes.plot([int(r["step"]) for r in part], [float(r["loss"]) for r in part], label=stage)
    axes.set(xlabel=f"step ({BATCH} scenarios each)", ylabel="loss per completion token, nats")
    axes.set_ylim(0, 2)
    axes.legend(frameon=False, fontsize=6)
    figure.savefig(image, dpi=110)
    return f"## Training loss\n\n{rows[-1]['step']} steps.\n\n![Loss by step]({image.name})"


def _pool(figures: Path, pool: Sequence[Prompt], samples: pa.Table) -> str:
    table = difficulty(samples, {p.prompt_id: p.tier for p in pool})
    counts = pass_rate_histogram(table, SAMPLES)
    figure, axes = new_axes()
    axes.bar(range(SAMPLES + 1), counts)
    axes.set(xlabel=f"correct completions of {SAMPLES}", ylabel="prompts")
    image = Path(f"{figures}-pass-rates.png")
    figure.savefig(image, dpi=110)
    head = "| correct of 10 | " + " | ".join(map(str, range(SAMPLES + 1))) + " |"
    line = "|---" * (SAMPLES + 2) + "|"
    body = "| prompts | " + " | ".join(map(str, counts)) + " |"
    none, all_ = (100 * counts[i] / len(pool) for i in (0, SAMPLES))
    return (
        f"## The default training pool ({len(pool)} prompts, K = {SAMPLES})\n\n"
        f"{head}\n{line}\n{body}\n\n{none:.1f} % of prompts have pass rate 0, "
        f"{all_:.1f} % have pass rate 1.\n\n"
        f"![Pass rates]({image.name})\n\n{_outcomes(samples)}"
    )


def _outcomes(samples: pa.Table) -> str:
    outcomes = samples["outcome"].to_pylist()
    shares = (f"{o} {100 * outcomes.count(o) / len(outcomes):.1f} %" for o in OUTCOMES)
    return "Samples: " + ", ".join(shares) + "."


def _test(lesson: Lesson[Any], test: Sequence[Prompt], samples: pa.Table) -> str:
    return (
        f"## The default test set ({len(test)} questions, {SAMPLES} samples each)\n\n"
        f"Accuracy {accuracy(samples):.3f}.\n\n{_by_tier(lesson, test, samples)}"
    )


def _by_tier(lesson: Lesson[Any], prompts: Sequence[Prompt], samples: pa.Table) -> str:
    tiers = {p.prompt_id: p.tier for p in prompts}
    of = np.array([tiers[i] for i in samples["prompt_id"].to_pylist()])
    lines = [f"| {lesson.tiers} | questions | accuracy |", "|---|---|---|"]
    names = sorted(set(of), key=lambda name: (len(name), name))
    for tier in names:
        count = sum(p.tier == tier for p in prompts)
        rate = accuracy(samples.filter(pa.array(of == tier)))
        lines.append(f"| {tier} | {count} | {rate:.3f} |")
    if lesson.chance is None:
        return "\n".join(lines)
    more = [" random guess |", "---|", *(f" {lesson.chance(t):.3f} |" for t in names)]
    return "\n".join(line + column for line, column in zip(lines, more, strict=True))


def _styles(lesson: Lesson[Any], samples: pa.Table) -> str:
    """The share of completions that answer directly, and the accuracy of each style."""
    answer = "<tool_call>" if lesson.tools else "\\boxed{"
    texts = samples["completion"].to_pylist()
    right = np.array([outcome == "correct" for outcome in samples["outcome"].to_pylist()])
    bare = np.array([text.startswith(answer) for text in texts])
    worked = np.array([answer in text for text in texts]) & ~bare
    return (
        f"Of these samples, {100 * worked.mean():.1f} % write out steps before the "
        f"{'first guess' if lesson.tools else 'answer'} ({_share(right[worked])} correct); "
        f"{100 * bare.mean():.1f} % {'guess' if lesson.tools else 'answer'} directly "
        f"({_share(right[bare])} correct)."
    )


def _share(right: np.ndarray) -> str:
    return f"{100 * right.mean():.1f} %" if right.size else "none"


def _lengths(task: Task, sampler: TransformersSampler, pool: Sequence[Prompt]) -> str:
    requests = [Request(p.prompt_id, task.messages(p.question), []) for p in pool]
    lengths = np.array(sampler.count_tokens(requests))
    return (
        f"## Prompt lengths\n\nTokens per prompt of the pool: mean {lengths.mean():.0f}, "
        f"95th percentile {np.quantile(lengths, 0.95):.0f}, maximum {lengths.max()}."
    )


def _benchmark(lesson: Lesson[Any], sampler: TransformersSampler, folder: Path | None) -> str:
    title = "## BIG-Bench Hard, tracking shuffled objects"
    if folder is None:
        return f"{title}\n\nNot measured: run the recipe with `--bbh FOLDER`."
    task = ShuffledObjects(source="bbh", path=str(folder), test=750, train=0)
    items = task.test()
    samples = _draw(sampler, task, items, 4)
    return (
        f"{title}\n\nThe {len(items)} original items, 4 samples each. Their wording does not "
        f"occur in the training text. Accuracy {accuracy(samples):.3f}.\n\n"
        f"{_by_tier(lesson, items, samples)}\n\n{_outcomes(samples)}"
    )
