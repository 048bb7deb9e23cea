"""`decile.trl.PromptSelector` in TRL's own trainer, against cells with the same history."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch.distributed as dist
from grpo import one_thread  # noqa: F401 (fixture)  # noqa: F401 (fixture)  # noqa: F401 (fixture)
from trl_selector_cases import by_update, cell, selector_of, sizes, small_cell, trainer_of  # noqa: F401 (fixtures)
from two_workers import two_workers


def table_of_a_run(own: Path, out: Path, policy: str, processes: int, resume: str) -> pa.Table:
    """What the selector of a run of four updates, by so many processes, has recorded."""
    sizes = {"max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 16 // processes}
    own.mkdir(exist_ok=True)
    cell = small_cell(own, policy, {}, **sizes)
    selector = selector_of(cell, policy)
    trainer = trainer_of(cell, out, selector)
    selector.attach(trainer)
    trainer.train(resume_from_checkpoint=str(out / resume) if resume else None)
    return selector.table()


def worker(rank: int, folder: Path, resume: str) -> None:
    assert not dist.is_initialized(), "TRL connects them, after the selector is constructed"
    for policy in ("predicted", "dynamic"):
        own = folder / f"rank-{rank}"
        groups = table_of_a_run(own, folder / policy, policy, 2, resume)
        pq.write_table(groups, folder / f"{policy}-{rank}.parquet")


def test_several_processes_choose_as_one(tmp_path: Path) -> None:
    def run(resume: str = "") -> dict[str, list[pa.Table]]:
        two_workers(worker, tmp_path, resume, connected=False)
        return {
            policy: [pq.read_table(tmp_path / f"{policy}-{rank}.parquet") for rank in (0, 1)]
            for policy in ("predicted", "dynamic")
        }

    two = run()
    for policy, tables in two.items():
        one = table_of_a_run(tmp_path / "one", tmp_path / f"{policy}-alone", policy, 1, "")
        assert tables[0] == tables[1]
        assert by_update(tables[0]) == by_update(one)
        assert (policy == "dynamic") == any(one["discarded"].to_pylist())
    assert run("checkpoint-2") == two
