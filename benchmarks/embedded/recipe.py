"""The command that made the embedded models: `python -m benchmarks.embedded.recipe --model NAME`.

Seeded from end to end: vocabulary, weights, training text. It writes the model's folder, and a page
under `docs/` with what the model can do.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from benchmarks.embedded.lesson import Lesson
from benchmarks.embedded.lessons import LESSONS
from benchmarks.embedded.measure import write_page
from benchmarks.embedded.pretrain import Point, make_model, train
from benchmarks.embedded.vocabulary import make_tokenizer
from orchestrator.embedded import EMBEDDED, embedded_path
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.hashing import folder_identity


def main() -> None:
    """Make the model, put its files in place, measure it, write the page."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    lesson, name, docs = LESSONS[arguments.model], arguments.model, arguments.docs
    out = arguments.out or embedded_path(name)
    docs.mkdir(exist_ok=True)
    if not arguments.measure_only:
        curve = make(lesson, out, arguments.seed, arguments.scale, arguments.cycle)
        save_curve(curve, docs / f"{lesson.figures}-loss.csv", keep=arguments.cycle > 0)
    write_page(lesson, ModelSource(name, str(out), folder_identity(out)), docs, arguments.bbh)


def parse() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=EMBEDDED, default=EMBEDDED[0])
    parser.add_argument("--out", type=Path, help="model folder; default: where the package has it")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the page goes")
    parser.add_argument("--bbh", type=Path, help="folder with the three BIG-Bench Hard files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps")
    parser.add_argument("--cycle", type=int, default=0, help="begin here, from the model in --out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure-only", action="store_true", help="keep the weights there are")
    return parser.parse_args()


def make(lesson: Lesson[Any], out: Path, seed: int, scale: float, cycle: int) -> list[Point]:
    """Train, and replace the model's folder once all its files are written."""
    tokenizer = make_tokenizer(lesson, seed)
    model = LlamaForCausalLM.from_pretrained(out) if cycle else make_model(tokenizer, seed)
    curve = []
    for point in train(model.train(), tokenizer, lesson, seed, scale, cycle):
        curve.append(point)
        if point.step % 100 == 0:
            recent = sum(p.loss for p in curve[-100:]) / 100
            print(f"{point.step} {point.stage}: {recent:.4f} ({point.seconds:.0f} s)", flush=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        fresh = Path(folder, "model")
        model.generation_config.max_length = None
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        for file in fresh.iterdir():
            file.chmod(0o644)
        shutil.rmtree(out, ignore_errors=True)
        fresh.rename(out)
    return curve


def save_curve(curve: list[Point], file: Path, keep: bool) -> None:
    """The loss by step, every 20 steps, as CSV; with `keep`, behind what the file holds."""
    lines = file.read_text(encoding="utf-8").splitlines() if keep else ["step,stage,loss"]
    before = int(lines[-1].partition(",")[0]) if keep else 0
    for start in range(0, len(curve), 20):
        part = curve[start : start + 20]
        mean = sum(p.loss for p in part) / len(part)
        lines.append(f'{before + start + len(part)},"{part[-1].stage}",{mean:.4f}')
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
