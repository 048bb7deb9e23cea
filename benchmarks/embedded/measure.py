"""Evaluates an embedded model and writes the results as a note of the documentation."""

import csv
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.embedded.lesson import Lesson
from benchmarks.embedded.pretrain import BATCH
from docs.generate_notes import KEYS
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


def write_note(lesson: Lesson[Any], model: ModelSource, docs: Path, bbh: Path | None) -> None:
    """Evaluate the model and write its note and figures."""
    sampler = TransformersSampler.load(model)
    task = lesson.task
    pool, test = task.train(), task.test()
    samples, test_samples = (_draw(sampler, task, part, SAMPLES) for part in (pool, test))
    counts = pass_rate_histogram(difficulty(samples, {p.prompt_id: p.tier for p in pool}), SAMPLES)
    sections = [
        _head(sampler, model, accuracy(test_samples), counts),
        "## Results",
        _pool(docs / f"{model.name}-pass-rates.png", counts, samples),
        f"{_test(lesson, test, test_samples)}\n\n{_styles(lesson, test_samples)}",
        _lengths(task, sampler, pool),
    ]
    if isinstance(task, ShuffledObjects):
        sections.append(_benchmark(lesson, sampler, bbh))
    sections += [_loss(docs / f"{model.name}-loss.csv"), "## Reading", _about(lesson)]
    (docs / f"{model.name}.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _draw(
    sampler: TransformersSampler, task: Task, prompts: Sequence[Prompt], samples: int
) -> pa.Table:
    requests = [(prompt, range(samples)) for prompt in prompts]
    return sample_and_mark(sampler, task, requests, SETTINGS)


def _head(
    sampler: TransformersSampler, model: ModelSource, solved: float, counts: Sequence[int]
) -> str:
    """The head of the note; its form is that of all notes (docs/generate_notes.py)."""
    weights = sum(p.numel() for p in sampler.model.parameters())
    size = sum(file.stat().st_size for file in Path(model.location).iterdir()) / 1e6
    never, always = (100 * counts[i] / sum(counts) for i in (0, SAMPLES))
    values = (
        f"How much does the embedded model `{model.name}` solve before any sweep trains it?",
        "models",
        f"a Llama decoder with {weights:,} parameters in float32 and a byte-level BPE vocabulary "
        f"of {len(sampler.tokenizer):,} tokens (files of {size:.1f} MB); default pool and test set "
        f"of its task, {SAMPLES} samples each, temperature 1, at most "
        f"{SETTINGS.max_completion_length} new tokens",
        "–",
        f"`python -m benchmarks.embedded.recipe --model {model.name}`",
        time.strftime("%Y-%m-%d"),
        _commit(),
        f"It solves {solved:.3f} of the test set; {never:.1f} % of the prompts of the pool have "
        f"pass rate 0, {always:.1f} % have pass rate 1.",
    )
    lines = (f"* {key}: {value}" for key, value in zip(KEYS, values, strict=True))
    return "\n".join([f"# The embedded model `{model.name}`", "", *lines])


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _about(lesson: Lesson[Any]) -> str:
    return f"It is trained from a fixed seed on generated text only. {lesson.about}"


def _loss(file: Path) -> str:
    """The loss curve as a figure beside the file of its values."""
    if not file.is_file():
        return "The training loss was not recorded."
    with file.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    figure, axes = new_axes()
    for stage in dict.fromkeys(row["stage"] for row in rows):
        part = [row for row in rows if row["stage"] == stage]
        axes.plot([int(r["step"]) for r in part], [float(r["loss"]) for r in part], label=stage)
    axes.set(xlabel=f"step ({BATCH} scenarios each)", ylabel="loss per completion token, nats")
    axes.set_ylim(0, 2)
    axes.legend(frameon=False, fontsize=6)
    image = file.with_suffix(".png")
    figure.savefig(image, dpi=110)
    return f"Training loss in {rows[-1]['step']} steps:\n\n![Loss by step]({image.name})"


def _pool(image: Path, counts: Sequence[int], samples: pa.Table) -> str:
    figure, axes = new_axes()
    axes.bar(range(SAMPLES + 1), counts)
    axes.set(xlabel=f"correct completions of {SAMPLES}", ylabel="prompts")
    figure.savefig(image, dpi=110)
    head = f"| correct of {SAMPLES} | " + " | ".join(map(str, range(SAMPLES + 1))) + " |"
    line = "|---" * (SAMPLES + 2) + "|"
    body = f"| prompts of {sum(counts)} | " + " | ".join(map(str, counts)) + " |"
    return f"{head}\n{line}\n{body}\n\n{_outcomes(samples)}\n\n![Pass rates]({image.name})"


def _outcomes(samples: pa.Table) -> str:
    outcomes = samples["outcome"].to_pylist()
    marked = [outcome for outcome in OUTCOMES if outcome != "unlabelled"]  # all have a gold answer
    shares = (f"{o} {100 * outcomes.count(o) / len(outcomes):.1f} %" for o in marked)
    return "Samples: " + ", ".join(shares) + "."


def _test(lesson: Lesson[Any], test: Sequence[Prompt], samples: pa.Table) -> str:
    return (
        f"Test set of {len(test)} questions: accuracy {accuracy(samples):.3f}.\n\n"
        f"{_by_tier(lesson, test, samples)}"
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
        f"Tokens per prompt of the pool: mean {lengths.mean():.0f}, "
        f"95th percentile {np.quantile(lengths, 0.95):.0f}, maximum {lengths.max()}."
    )


def _benchmark(lesson: Lesson[Any], sampler: TransformersSampler, folder: Path | None) -> str:
    title = "BIG-Bench Hard, tracking shuffled objects"
    if folder is None:
        return f"{title}: not measured; run the recipe with `--bbh FOLDER`."
    task = ShuffledObjects(source="bbh", path=str(folder), test=750, train=0)
    items = task.test()
    samples = _draw(sampler, task, items, 4)
    return (
        f"{title}, the {len(items)} original items, 4 samples each: accuracy "
        f"{accuracy(samples):.3f}. Their wording does not occur in the training text.\n\n"
        f"{_by_tier(lesson, items, samples)}\n\n{_outcomes(samples)}"
    )
