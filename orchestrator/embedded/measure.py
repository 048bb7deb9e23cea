"""What the tiny model can do, measured by the rooms that measure every model, as a page."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.difficulty import difficulty, pass_rate_histogram
from orchestrator.evaluation import accuracy
from orchestrator.models import ModelSource, folder_identity
from orchestrator.report.figures import new_axes
from orchestrator.samples import draw
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.transformers import TransformersSampler
from tasks import OUTCOMES, Prompt, get_task
from tasks.shuffled_objects import ShuffledObjects

SAMPLES = 10
SETTINGS = SamplingSettings(max_completion_length=96)


def write_page(model: Path, docs: Path, bbh: Path | None) -> None:
    """Measure the model of a folder and write `embedded-model.md` and its figures."""
    docs.mkdir(exist_ok=True)
    sampler = TransformersSampler.load(ModelSource("tiny", str(model), folder_identity(model)))
    task = get_task("shuffled_objects")
    pool, test = task.train(), task.test()
    sections = [
        _about(sampler, model),
        _loss(docs),
        _pool(docs, pool, _draw(sampler, pool, SAMPLES)),
        _test(test, _draw(sampler, test, SAMPLES)),
        _lengths(sampler, pool),
        _benchmark(sampler, bbh),
    ]
    (docs / "embedded-model.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _draw(sampler: TransformersSampler, prompts: Sequence[Prompt], samples: int) -> pa.Table:
    wanted = [(prompt, range(samples)) for prompt in prompts]
    return draw(sampler, ShuffledObjects(), wanted, SETTINGS)


def _about(sampler: TransformersSampler, model: Path) -> str:
    count = sum(p.numel() for p in sampler.model.parameters())
    size = sum(file.stat().st_size for file in model.iterdir()) / 1e6
    return (
        "# The embedded model\n\n"
        "`python -m orchestrator.embedded.recipe` makes it from a seed, out of generated text "
        "alone, and writes this page; no item of any benchmark is ever seen.\n\n"
        f"It is a Llama decoder of {count:,} parameters in float32 with a byte-level BPE of "
        f"{len(sampler.tokenizer):,} tokens; its folder takes {size:.1f} MB. First it learns to "
        "track swaps by written steps, backwards from the last one; then a mixture of styles, as "
        "a base model has them: steps, a bare guess, talk without an answer. Steps are rarer with "
        "more objects, more swaps and in some scenes, so that pass rates differ between prompts. "
        "The cycles of `pretrain.py` ran one after the other (`--cycle`), the first on one thread, "
        "the others on two; another number of threads adds in another order and ends in weights "
        "that differ in their last digits. "
        "All figures below: temperature 1, at most 96 new tokens."
    )


def _loss(docs: Path) -> str:
    file = docs / "embedded-loss.csv"
    if not file.is_file():
        return "## Loss\n\nNot recorded."
    with file.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    figure, axes = new_axes()
    for stage in dict.fromkeys(row["stage"] for row in rows):
        part = [row for row in rows if row["stage"] == stage]
        axes.plot([int(r["step"]) for r in part], [float(r["loss"]) for r in part], label=stage)
    axes.set(xlabel="step (32 scenarios each)", ylabel="loss per completion token, nats")
    axes.set_ylim(0, 2)
    axes.legend(frameon=False, fontsize=6)
    figure.savefig(docs / "embedded-loss.png", dpi=110)
    return f"## Loss\n\n{rows[-1]['step']} steps.\n\n![Loss by step](embedded-loss.png)"


def _pool(docs: Path, pool: Sequence[Prompt], samples: pa.Table) -> str:
    table = difficulty(samples, {p.prompt_id: p.tier for p in pool})
    counts = pass_rate_histogram(table, SAMPLES)
    figure, axes = new_axes()
    axes.bar(range(SAMPLES + 1), counts)
    axes.set(xlabel=f"correct completions of {SAMPLES}", ylabel="prompts")
    figure.savefig(docs / "embedded-pass-rates.png", dpi=110)
    head = "| correct of 10 | " + " | ".join(map(str, range(SAMPLES + 1))) + " |"
    line = "|---" * (SAMPLES + 2) + "|"
    body = "| prompts | " + " | ".join(map(str, counts)) + " |"
    none, all_ = (100 * counts[i] / len(pool) for i in (0, SAMPLES))
    return (
        f"## The default training pool ({len(pool)} prompts, K = {SAMPLES})\n\n"
        f"{head}\n{line}\n{body}\n\n{none:.1f} % of prompts at 0, {all_:.1f} % at 1.\n\n"
        f"![Pass rates](embedded-pass-rates.png)\n\n{_outcomes(samples)}"
    )


def _outcomes(samples: pa.Table) -> str:
    outcomes = samples["outcome"].to_pylist()
    shares = (f"{o} {100 * outcomes.count(o) / len(outcomes):.1f} %" for o in OUTCOMES)
    return "Samples: " + ", ".join(shares) + "."


def _test(test: Sequence[Prompt], samples: pa.Table) -> str:
    return (
        f"## The default test set ({len(test)} questions, {SAMPLES} samples each)\n\n"
        f"Accuracy {accuracy(samples):.3f}.\n\n{_by_tier(test, samples)}"
    )


def _by_tier(prompts: Sequence[Prompt], samples: pa.Table) -> str:
    tiers = {p.prompt_id: p.tier for p in prompts}
    of = np.array([tiers[i] for i in samples["prompt_id"].to_pylist()])
    lines = ["| objects | questions | accuracy | a blind guess |", "|---|---|---|---|"]
    for tier in sorted(set(of)):
        count = sum(p.tier == tier for p in prompts)
        rate = accuracy(samples.filter(pa.array(of == tier)))
        lines.append(f"| {tier} | {count} | {rate:.3f} | {1 / int(tier):.3f} |")
    return "\n".join(lines)


def _lengths(sampler: TransformersSampler, pool: Sequence[Prompt]) -> str:
    task = ShuffledObjects()
    asked = [Request(p.prompt_id, task.messages(p.question), []) for p in pool]
    lengths = np.array(sampler.count_tokens(asked))
    return (
        f"## Lengths\n\nPrompts of the pool: {lengths.mean():.0f} tokens on average, "
        f"{np.quantile(lengths, 0.95):.0f} at the 95th percentile, {lengths.max()} at most."
    )


def _benchmark(sampler: TransformersSampler, folder: Path | None) -> str:
    title = "## BIG-Bench Hard, tracking shuffled objects"
    if folder is None:
        return f"{title}\n\nNot measured: give the recipe `--bbh FOLDER`."
    items = ShuffledObjects(source="bbh", path=str(folder), test=750, train=0).test()
    samples = _draw(sampler, items, 4)
    return (
        f"{title}\n\nThe {len(items)} real items, 4 samples each; the model has never seen their "
        f"wording. Accuracy {accuracy(samples):.3f}.\n\n{_by_tier(items, samples)}\n\n"
        f"{_outcomes(samples)}"
    )
