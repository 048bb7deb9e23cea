"""The suspected gold answers of a difficulty table. Pure."""

import pyarrow as pa
import pyarrow.compute as pc

DOUBT = b"doubt"  # the key in a difficulty table's metadata


def no_suspects(table: pa.Table) -> str:
    """A note for policies that exclude suspected prompts: there are none, with the reason."""
    if pc.any(table["suspected"]).as_py():
        return ""
    doubt = (table.schema.metadata or {}).get(DOUBT, b"").decode()
    why = doubt or "completions do not agree on answers other than the gold answers"
    return f"no prompt is left out as suspected: {why}"
