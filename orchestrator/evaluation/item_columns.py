"""The columns and the metadata of a table of answers that `decile evaluate` writes."""

import json
from typing import Any

import pyarrow as pa

METADATA = b"decile.evaluation"  # in the schema's metadata, as JSON
OF_SAMPLES = ("outcome", "score", "extracted", "tokens", "finish", "completion")
OF_PROMPTS = ("question", "gold", "tier", "group")
COLUMNS = ("prompt_id", "sample", "correct", *OF_SAMPLES, *OF_PROMPTS)  # others are the data's


def item_metadata(schema: pa.Schema) -> dict[str, Any]:
    """What `item_table` has written about an evaluation; empty for another table."""
    try:
        known = json.loads((schema.metadata or {}).get(METADATA, b"{}"))
    except ValueError:  # a file that anybody may have written
        return {}
    return known if isinstance(known, dict) and isinstance(known.get("settings"), dict) else {}
