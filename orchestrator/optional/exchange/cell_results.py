"""The evaluation of a cell of a storage as results to compare, with data of its sweep."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.evaluation.item_table import item_settings
from orchestrator.evaluation.metrics import by_update, own_test_set, scores
from orchestrator.optional.exchange.item_files import ItemRow, ResultFile
from orchestrator.report.compare import Spreads, policy_key, read_spreads
from orchestrator.report.fairness import gain_rates
from orchestrator.stats.inference import Effect, SeedSpread
from orchestrator.storage.errors import UserError
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.cell_paths import CELLS, RESULT
from tasks.sources.user_files import sha256_of


def read_cell(folder: Path) -> ResultFile:
    """The evaluation of a cell after its last update, on its own test set, as in the report."""
    stored = CellFolder.at(folder)
    if stored is None or not (folder / RESULT).is_file():
        raise UserError(
            f"{folder} is not the folder of a finished cell: write STORAGE/{CELLS}/ID, where "
            f"{RESULT} is, or a folder with logs or tables"
        )
    finished = stored.finished()
    if finished is None:
        raise UserError(f"{folder} fails verification: run decile doctor --storage")
    result, tables = finished
    steps = by_update(tables["evaluations"])
    evaluation = own_test_set(steps[result.updates])
    before, after = scores(own_test_set(steps[0])), scores(evaluation)
    rows = [
        ItemRow(
            f"row {n}",
            row["prompt_id"],
            None if row["outcome"] == "error" else float(row["outcome"] == "correct"),
            str(row["sample"]),
            group=row["group"] or "",
            tier=row["tier"] or "",
            source=row["source"] or "",
            outcome=row["outcome"],
        )
        for n, row in enumerate(evaluation.drop_columns("completion").to_pylist(), 1)
    ]
    about = {name: getattr(result, name) for name in ("model", "dataset", "policy")}
    digest, cell = sha256_of(folder / "evaluations.parquet"), stored.settings()
    settings = item_settings(cell.baseline) if cell else {}
    return ResultFile(
        str(folder),
        "cell",
        digest,
        "correct",
        rows,
        about,
        result.seed,
        stored,
        changes={i: after[i] - before[i] for i in after.keys() & before.keys()},
        settings=settings,
    )


def gain_per(files: Sequence[ResultFile], groups: Mapping[str, str]) -> dict[str, Effect]:
    """Points gained per unit of cost, if all files are cells."""
    results = [result for file in files if file.cell and (result := file.cell.result())]
    if not results or len(results) < len(files):
        return {}
    changes = [file.changes for file in files]
    return gain_rates(changes, [result.ledger.units for result in results], groups)


def stored_spreads(files: Mapping[str, Sequence[ResultFile]]) -> dict[str, SeedSpread]:
    """Arm -> the variance between training seeds of all stored cells of its policy."""
    spreads = {}
    for arm, own in files.items():
        folders = [file.cell for file in own if file.cell]
        cells = [cell for folder in folders if (cell := folder.settings())]
        keys = {policy_key(cell) for cell in cells}
        stores = {folder.store.uri for folder in folders}
        if len(cells) < len(own) or len(keys) != 1 or len(stores) != 1:
            continue
        stored = read_spreads(folders[0].store, cells)
        if spread := stored.get(keys.pop(), Spreads()).accuracy:
            spreads[arm] = spread
    return spreads
