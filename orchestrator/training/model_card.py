"""The README.md of a finished cell, in place of the one that TRL writes."""

from typing import Any

from orchestrator.planning.cells import Cell

CARD = """# {name}

A LoRA adapter for `{base}`, trained with GRPO on {size} prompts of `{dataset}` that the policy
`{policy}` {selected} (training seed {seed}, {updates} updates).

| | |
|---|---|
| accuracy before → after | {before:.3f} → {after:.3f} |
| learnable % | {learnable:.1f} |
| prompts, subset | {size}, `subsets/{subset}.parquet` |
| cell | `{cell_id}` |
| versions | {versions} |

One training seed proves little: the report of the sweep (`decile report`) has intervals and says
which differences hold.

## Load

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained({load})
model = PeftModel.from_pretrained(base, "adapter")  # this folder
```

## Files

| file | content |
|---|---|
| `adapter/` | the adapter after the last update (safetensors) |
| `cell.json` | every setting |
| `result.json`, `ledger.json` | the numbers, and what the cell consumed |
| `groups.parquet` | the completions' rewards, group by group |
| `evaluations.parquet` | every completion of the test sets, marked |
| `log.parquet` | the trainer's metrics |
"""


def model_card(cell: Cell, result: dict[str, Any]) -> str:
    """Markdown: what was trained, on what, with which result, and how to load it."""
    model = cell.probe.model
    on_hub = model.revision is not None
    return CARD.format(
        name=cell.name,
        base=f"{model.location} @ {model.revision}" if on_hub else model.name,
        load=f'"{model.location}"' + (f', revision="{model.revision}"' if on_hub else ""),
        dataset=cell.probe.dataset.name,
        policy=cell.policy,
        selected="chose from during training" if cell.online else "selected",
        seed=cell.seed,
        updates=cell.updates,
        size=result["size"],
        subset=cell.subset_key,
        cell_id=cell.cell_id,
        before=result["accuracy_base"],
        after=result["accuracy_final"],
        learnable=result["learnable_pct"],
        versions=", ".join(" ".join(pair) for pair in result["versions"].items()),
    )
