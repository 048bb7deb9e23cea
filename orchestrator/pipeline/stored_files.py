"""What a storage holds: each kind of file, what is in it, and who writes and reads it. Pure.

Words in capitals stand for names, keys and numbers. What proves a file is its `proof`; what
`decile run` does about one that fails is in `audit.REMEDIES`.
"""

from typing import NamedTuple

from orchestrator.training.cell_paths import CELLS, RESULT

OWN = "the SHA-256 of its bytes and its path, inside the file"
LISTED = "the manifest of its checkpoint lists its size and SHA-256"
OF_RESULT = f"`{RESULT}` lists its size and SHA-256"
NOTHING = "nothing: no result depends on it"
RUN, PROBE = "decile run", "decile probe, decile run"


class StoredFile(NamedTuple):
    """A kind of file, by the form of its path.

    audited: whether its proof is checked before a run.
    """

    path: str
    holds: str
    writer: str
    readers: str
    proof: str
    audited: bool = True


FILES = (
    StoredFile(
        "probes/KEY/PART.parquet",
        "samples of a base model, each with its mark; several parts are one probe",
        PROBE,
        "every command that needs difficulty, and evaluations of the base model",
        "the SHA-256 in its name, and the key of the probe in its metadata",
    ),
    StoredFile(
        "probes/KEY/key.json", "the values that the key hashes", PROBE, "decile select", OWN
    ),
    StoredFile(
        "probes/KEY/marks-MARKER/PART.parquet",
        "marks of the same samples by another marker",
        PROBE,
        "as the samples",
        OWN,
    ),
    StoredFile(
        "subsets/KEY.parquet",
        "the prompts that a policy selected, by rank, with the reason for each",
        "decile probe, decile run, decile select",
        "training; decile export",
        OWN,
    ),
    StoredFile(f"{CELLS}/ID/cell.json", "what the cell is", RUN, "decile plan, decile report", OWN),
    StoredFile(
        f"{CELLS}/ID/checkpoint-N/decile.json",
        "the manifest of a checkpoint, written last",
        RUN,
        "the trial that resumes the cell",
        OWN,
    ),
    StoredFile(
        f"{CELLS}/ID/checkpoint-N/FILE",
        "the trainer's state, the adapter, and the tables up to this update",
        RUN,
        "the trial that resumes the cell",
        LISTED,
    ),
    StoredFile(
        f"{CELLS}/ID/adapters/N/FILE",
        "an adapter that is evaluated after training; deleted when the cell is finished",
        RUN,
        "the engine of `evaluate`",
        LISTED,
    ),
    StoredFile(
        f"{CELLS}/ID/evaluated/N.json",
        "the seconds of that evaluation, written before its answers",
        RUN,
        "the result of the cell",
        OWN,
    ),
    StoredFile(
        f"{CELLS}/ID/evaluated/N.parquet",
        "the answers of that adapter; deleted when the cell is finished",
        RUN,
        "the result of the cell",
        OWN,
    ),
    StoredFile(
        f"{CELLS}/ID/adapter/FILE",
        "the LoRA adapter after the last update, in PEFT's form",
        RUN,
        "you; decile evaluate --adapter",
        OF_RESULT,
    ),
    StoredFile(
        f"{CELLS}/ID/groups.parquet",
        "every group that was trained on: a row per update and prompt, a list entry per completion",
        RUN,
        "decile report, decile diagnose, decile replay",
        OF_RESULT,
    ),
    StoredFile(
        f"{CELLS}/ID/discarded.parquet",
        "groups that were drawn and not trained on",
        RUN,
        "decile report",
        OF_RESULT,
    ),
    StoredFile(
        f"{CELLS}/ID/refreshed.parquet",
        "prompts that were probed again during training",
        RUN,
        "decile report",
        OF_RESULT,
    ),
    StoredFile(
        f"{CELLS}/ID/evaluations.parquet",
        "a row per completion of each evaluation; update 0 is the base model",
        RUN,
        "decile report, decile compare",
        OF_RESULT,
    ),
    StoredFile(
        f"{CELLS}/ID/log.parquet",
        "what the trainer logged: a number per row",
        RUN,
        "decile report, decile diagnose; MLflow",
        OF_RESULT,
    ),
    StoredFile(
        f"{CELLS}/ID/{RESULT}",
        "the result, written last: the cell is finished",
        RUN,
        "decile plan, decile report; MLflow",
        OWN,
    ),
    StoredFile(f"{CELLS}/ID/ledger.json", "what the cell consumed", RUN, "you", OWN),
    StoredFile(f"{CELLS}/ID/README.md", "the model card of the adapter", RUN, "you", OWN),
    StoredFile(
        f"{CELLS}/ID/micro_batch.json",
        "the micro-batch that fitted the memory of this machine",
        RUN,
        "the trial that resumes the cell",
        OWN,
    ),
    StoredFile(
        "sweeps/EXPERIMENT.json",
        "the declared cells, the hours used, the dates of claims, and the probed pools",
        PROBE,
        "decile plan, decile run, decile report",
        OWN,
    ),
    StoredFile(
        "sweeps/.EXPERIMENT.lease",
        "the driver that runs the experiment; in an object store, a folder of claims",
        PROBE,
        "another driver",
        NOTHING,
        audited=False,
    ),
    StoredFile(
        "sweeps/served/EXPERIMENT.json",
        "the names of adapters that were loaded on servers",
        RUN,
        "the next run, which unloads them",
        OWN,
        audited=False,
    ),
    StoredFile(
        "looks/HASH.json",
        "when verdicts were computed from these cells, and their level",
        "decile report, decile run",
        "decile report, decile run",
        OWN,
    ),
    StoredFile(
        "data/rows-HASH.parquet",
        "rows that a program gave to `decile.probe`; `.jsonl` where a column has several types",
        "decile.probe",
        "the data set of that probe",
        "its SHA-256 is in its name, and in the provenance of cells",
        audited=False,
    ),
    StoredFile("logs/NAME", "the traceback of an error", "every command", "you", NOTHING, False),
    StoredFile(
        "mlflow.db", "MLflow's database; any run builds it again", RUN, "decile ui", NOTHING, False
    ),
    StoredFile("mlartifacts/", "MLflow's artifacts", RUN, "decile ui", NOTHING, False),
)
