"""The answers of one evaluation as a table for `decile compare`: a row per question and sample."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.evaluation.item_columns import METADATA, OF_PROMPTS, OF_SAMPLES
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pool_columns import with_pool_columns
from orchestrator.planning.pools import Pool
from orchestrator.storage.schema import without_empty


def item_table(spec: ProbeSpec, pool: Pool, samples: pa.Table, about: dict[str, Any]) -> pa.Table:
    """The samples (schema SAMPLES) with their questions, in the order of prompt_id and sample.

    `correct` is null where marking failed. COLUMNS are followed by those of the user's data that
    are kept with the questions. `about` is the metadata besides the settings.
    """
    rows = pool.test.rows_of(samples["prompt_id"])
    prompts = pool.test.take(rows)
    outcomes = samples["outcome"]
    failed = pc.equal(outcomes, "error")
    columns = {
        "prompt_id": samples["prompt_id"],
        "sample": samples["sample"],
        "correct": pc.if_else(failed, None, pc.equal(outcomes, "correct")),
        **{name: samples[name] for name in OF_SAMPLES},
    }
    groups = pa.array(map(pool.groups.get, samples["prompt_id"].to_pylist()), pa.string())
    of_prompts = [prompts.column(name) for name in ("question", "answer", "tier")]
    columns |= dict(zip(OF_PROMPTS, [*of_prompts, groups], strict=True))
    metadata = about | {"settings": item_settings(spec)}
    table = with_pool_columns(without_empty(pa.table(columns)), prompts)
    return table.replace_schema_metadata({METADATA: json.dumps(metadata)})


def item_settings(spec: ProbeSpec) -> dict[str, Any]:
    """Everything but the model that decides the scores of a test set, by the names of the file."""
    identity = spec.identity
    return {
        "task": spec.dataset.task,
        "marker": spec.marker,
        "prompt template": spec.template,
        "chat_template_kwargs": spec.model.chat_template_kwargs,
        "samples": spec.settings.samples,
        **identity["sampling"],
    }
