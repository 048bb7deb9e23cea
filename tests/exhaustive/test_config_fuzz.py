"""Mutated experiments files: each plans, or one line says where and what to write instead."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_fuzz_cases import (
    PLACE,
    check,
    folder,  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
)
from mutations import QUESTIONS, SMALL
from remedies import problems

from orchestrator.config.catalog import Config, load_config
from orchestrator.storage.errors import UserError, one_line


def settings_below(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The place of every setting of the file, by its schema; of named entries, one."""
    root = Config.model_json_schema()
    for one in schema.get("anyOf", [schema]):
        block = {**root["$defs"][one["$ref"].rpartition("/")[2]], **one} if "$ref" in one else one
        for name, inner in block.get("properties", {}).items():
            yield (*path, name)
            yield from settings_below(inner, (*path, name))
        entry = block.get("additionalProperties")
        if isinstance(entry, dict) and "$ref" in entry:
            yield from settings_below(entry, (*path, NAMES[path[-1]]))


NAMES = {"models": "tiny", "datasets": "mine", "policies": "near", "experiments": "small"}
WRONG: tuple[Any, ...] = (7, [7], {"x": 1}, None)


def test_every_setting_is_refused_in_one_line(folder: Path) -> None:
    """No setting needs to be added to a list: they are those of the schema."""
    (folder / "questions.jsonl").write_text(QUESTIONS)
    file, places, faults = (
        folder / "experiments.yaml",
        [*settings_below(Config.model_json_schema())],
        [],
    )
    for place in places:
        for value in WRONG:
            content = yaml.safe_load(SMALL)
            block = content
            for part in place[:-1]:
                block = block.setdefault(part, {})
            block[place[-1]] = value
            file.write_text(yaml.safe_dump(content))
            try:
                load_config(file)
            except UserError as error:
                message = one_line(str(error))
                if wrong := problems(message) + ["no line"] * (not PLACE.search(message)):
                    faults.append(f"{'.'.join(place)} {value!r}: {', '.join(wrong)}: {message}")
    assert not faults, "\n".join(faults)
    assert ("datasets", "mine", "labels") in places


def test_many_mutated_files_are_planned_or_refused_in_one_line(folder: Path) -> None:
    check(folder, 250, seed=0)


def test_mutated_files_are_planned_or_refused_in_one_line(folder: Path) -> None:
    check(folder, 60, seed=1)


@pytest.mark.parametrize(
    "message",
    ["e.yaml:3: input should be a valid integer", "e.yaml:3: not valid", "a: write x\nb", "x"],
)
def test_a_message_without_a_remedy_is_noticed(message: str) -> None:
    assert problems(message)


def test_a_word_that_is_cut_keeps_its_closing_quote_and_colon() -> None:
    assert one_line(f"claim '{'x' * 300}': write a word") == f"claim '{'x' * 199}…': write a word"
    assert one_line("y" * 201) == f"{'y' * 200}…" and one_line("y" * 200) == "y" * 200
    assert one_line('"' * 100_000 + "x") == '"' * 200 + "…"
