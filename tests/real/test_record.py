"""Records of cells: saved with each checkpoint, and kept when a process is killed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from record_cases import latest, one_cell
from safetensors.torch import save_file
from transformers import TrainerState

from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.storage.verification import local_files
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import CellRecord
from orchestrator.training.trial import resumable_checkpoint


def vouched_checkpoint(store: Store, cell: Cell, record: CellRecord, update: int) -> Path:
    """A checkpoint with files as the trainer writes them; returns its folder."""
    folder = store.local_path("cells", cell.cell_id, f"checkpoint-{update}")
    weights = [torch.nn.Parameter(torch.ones(3))]
    optimizer = torch.optim.AdamW(weights)
    weights[0].sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    torch.save({"last_epoch": update}, folder / "scheduler.pt")
    state = {"numpy": np.random.get_state(), "cpu": torch.get_rng_state(), "python": (3, (1,))}
    for rank in (0, 1):
        torch.save(state, folder / f"rng_state_{rank}.pth")
    save_file({"lora": torch.ones(2)}, folder / "adapter_model.safetensors")
    TrainerState(global_step=update).save_to_json(str(folder / "trainer_state.json"))
    record.save(store, cell.cell_id, update, files=local_files(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("optimizer.pt", b"no pickle"),
        ("optimizer.pt", b""),
        ("scheduler.pt", b"\x80\x02cos\nsystem\n(S'true'\ntR."),
        ("rng_state_1.pth", b"PK\x03\x04 no archive"),
        ("adapter_model.safetensors", b"\xff" * 20),
        ("trainer_state.json", b'{"of_another_version": 1}'),
        ("adapter_config.json", b"{"),
    ],
)
def test_a_checkpoint_whose_files_are_listed_and_cannot_be_loaded_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes
) -> None:
    store, cell, record = one_cell(tmp_path)
    for update in (2, 4):
        folder = vouched_checkpoint(store, cell, record, update)
    folder_of_cell = CellFolder(store, cell.cell_id)
    newest = resumable_checkpoint(folder_of_cell)
    assert newest is not None and newest.update == 4
    (folder / name).write_bytes(content)
    record.save(store, cell.cell_id, 4, files=local_files(folder))
    assert latest(store, cell).update == 4, "its manifest vouches for it"

    newest = resumable_checkpoint(folder_of_cell)
    assert newest is not None and newest.update == 2
    assert f"checkpoint-4/{name} cannot be loaded (" in caplog.text
    assert (folder / f"{name}.unsound").read_bytes() == content
    assert latest(store, cell).update == 2
    (folder.parent / "checkpoint-2" / name).write_bytes(content)
    record.save(store, cell.cell_id, 2, files=local_files(folder.parent / "checkpoint-2"))
    assert resumable_checkpoint(folder_of_cell) is None, "it starts over"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 9 bytes")])
def test_a_lack_of_memory_is_not_the_fault_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store, cell, record = one_cell(tmp_path)
    vouched_checkpoint(store, cell, record, 4)

    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(type(error)):
        resumable_checkpoint(CellFolder(store, cell.cell_id))
    assert latest(store, cell).update == 4
