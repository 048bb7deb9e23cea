"""What the tests of mark file share."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def written(folder: Path, rows: list[dict], kind: str = "jsonl") -> Path:
    file = folder / f"in.{kind}"
    if kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    return file
