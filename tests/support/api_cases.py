"""What the tests of api share."""

import json
from pathlib import Path

from tasks.shuffled_objects import ShuffledObjects


def pool(name: str = "pool.jsonl", prompts: int = 40) -> None:
    rows = [
        {"question": p.question, "answer": p.answer} for p in ShuffledObjects(train=prompts).train()
    ]
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
