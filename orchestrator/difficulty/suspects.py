"""What a difficulty table says of suspected gold answers. Pure."""

import pyarrow as pa
import pyarrow.compute as pc

DOUBT = b"doubt"  # the key in a difficulty table's metadata


def no_suspects(table: pa.Table) -> str:
    """That no prompt of a difficulty table is suspected, which a policy relies on, and why."""
    if pc.any(table["suspected"]).as_py():
        return ""
    doubt = (table.schema.metadata or {}).get(DOUBT, b"").decode()
    why = doubt or "completions do not agree on other answers than the gold ones"
    return f"no prompt is left out as suspected: {why}"
