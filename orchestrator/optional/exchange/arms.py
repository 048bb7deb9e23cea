"""Arms of a comparison, as named on a command line."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.optional.exchange.item_results import Source
from orchestrator.storage.errors import UserError


def parse_arms(arguments: Sequence[str]) -> dict[str, list[Source]]:
    """Command-line arguments -> arms: NAME=PATH, which may be repeated, or PATH, named by its file.

    Paths with equal file names are named by the whole path.
    """
    arms: dict[str, list[Source]] = {}
    unnamed: set[str] = set()
    plain = [a for a in arguments if "=" not in a or os.path.lexists(a)]
    stems = [re.sub(r"\.(jsonl|json|csv|parquet|eval)(\.gz)?$", "", Path(a).name) for a in plain]
    for argument in arguments:
        if argument in plain:
            stem = stems[plain.index(argument)]
            name, path = stem if stems.count(stem) == 1 and stem else argument, argument
            unnamed.add(name)
        else:
            name, _, path = argument.partition("=")
        if not name.strip() or not path:
            raise UserError(f"arm {argument!r:.80}: write NAME=FILE, NAME=FOLDER or NAME='GLOB'")
        if name in arms and name in unnamed:
            raise UserError(f"{argument}: there already is an arm {name}: write OTHER={path}")
        arms.setdefault(name, []).append(path)
    return arms
