"""The messages in docs/operations.md are those of the code."""

import ast
import re
from pathlib import Path

from import_graph import ROOT, source_modules

PAGE = ROOT / "docs" / "operations.md"


def texts(file: Path) -> set[str]:
    """The texts of a module; what an f-string inserts is written as `…`."""
    texts = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
            texts.add("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
    return texts


def test_the_messages_are_those_of_the_code() -> None:
    code = "\n".join(text for file in source_modules().values() for text in texts(file))
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \|$", PAGE.read_text(), re.M)
    messages = [m for row in rows for m in re.findall(r"`([^`]{12,})`", row) if "decile" not in m]
    assert len(messages) > 15
    for message in messages:
        for fragment in re.split(
            r"…|; (?=rerun|Ray)|: (?=rename|set)|, and (?=rerun)|, then ", message
        ):
            assert fragment.strip(" ,;:()") in code, f"{message}: {fragment!r}"
