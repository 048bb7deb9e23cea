"""Mutated experiments files: `decile plan` accepts each, or refuses it in one line."""

import time
from collections.abc import Iterator
from pathlib import Path

from config_fuzz_cases import PLACE, refusal
from mutations import QUESTIONS, variants
from remedies import problems

from chaos.cases import Case


def mutated_files(folder: Path, count: int, seed: int) -> Iterator[Case]:
    """`count` mutations; relative paths in them are looked up in an empty folder."""
    place = folder / "mutated"
    place.mkdir()
    (place / "questions.jsonl").write_text(QUESTIONS)
    file = place / "experiments.yaml"
    for change, data in variants(count, seed):
        file.write_bytes(data)
        began, case = time.monotonic(), Case("mutated experiments.yaml")
        try:
            message = refusal(file, change)
        except Exception as error:  # noqa: BLE001 (what the user would see as a traceback)
            case.problems.append(f"{change}: {type(error).__name__}: {error}")
        else:
            if message and not PLACE.search(message):
                case.problems.append(f"{change}: no line: {message}")
            case.problems += [f"{change}: {p}" for p in (problems(message) if message else [])]
        case.seconds = time.monotonic() - began
        yield case
