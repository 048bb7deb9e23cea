"""Train an embedded model: `python -m benchmarks.embedded.recipe --model NAME`.

Vocabulary, initial weights and training text follow from the seed. Writes the model's folder, and
a note in `docs/notes/` with its measured accuracy and pass rates.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.command_line import benchmark_parser
from benchmarks.embedded.lesson import Lesson
from benchmarks.embedded.lessons import LESSONS
from benchmarks.embedded.measure import write_note
from benchmarks.embedded.pretrain import Point, make_model, train
from benchmarks.embedded.vocabulary import make_tokenizer
from orchestrator.embedded import EMBEDDED, embedded_path
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.identity import folder_identity

NOTES = Path("docs", "notes")


def main() -> None:
    """Train the model, replace its files, evaluate it, and write the note."""
    arguments = parse()
    torch.set_num_threads(1)  # more change the order of summation, and with it the weights
    lesson, name, docs = LESSONS[arguments.model], arguments.model, arguments.docs
    out = arguments.out or embedded_path(name)
    docs.mkdir(exist_ok=True)
    if not arguments.measure_only:
        curve = make(lesson, out, arguments.seed, arguments.scale)
        save_curve(curve, docs / f"{name}-loss.csv")
    write_note(lesson, ModelSource(name, str(out), folder_identity(out)), docs, arguments.bbh)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("embedded.recipe", __doc__)
    parser.add_argument("--model", choices=EMBEDDED, default=next(iter(EMBEDDED)), help="the model")
    parser.add_argument("--out", type=Path, help="model folder (default: the package's)")
    parser.add_argument(
        "--docs", type=Path, default=NOTES, help="folder of the note (default docs/notes)"
    )
    parser.add_argument("--bbh", type=Path, help="folder with the three files of BIG-Bench Hard")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training (default 0)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor of the number of steps (default 1)"
    )
    parser.add_argument("--measure-only", action="store_true", help="evaluate the existing weights")
    return parser.parse_args()


def make(lesson: Lesson[Any], out: Path, seed: int, scale: float) -> list[Point]:
    """Train, and replace the model's folder once all its files are written."""
    tokenizer = make_tokenizer(lesson, seed)
    model = make_model(tokenizer, seed, lesson.offsets)
    curve = []
    for point in train(model.train(), tokenizer, lesson, seed, scale):
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


def save_curve(curve: list[Point], file: Path) -> None:
    """Write the mean loss of every 20 steps as CSV."""
    lines = ["step,stage,loss"]
    for start in range(0, len(curve), 20):
        part = curve[start : start + 20]
        mean = sum(p.loss for p in part) / len(part)
        lines.append(f'{start + len(part)},"{part[-1].stage}",{mean:.4f}')
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
