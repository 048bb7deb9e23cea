"""Where a cell's trainer writes its checkpoints: in the store, or on the node and copied to it.

A trainer writes to a local folder. In a file system store, that is the cell's own folder. With an
object store the trainer writes to a scratch folder on its node, every checkpoint is uploaded before
its manifest, and a cell that resumes downloads it again, on whichever node. Either way a kill costs
the updates since the last checkpoint.
"""

import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator.storage.errors import one_line
from orchestrator.storage.proof import FileProof
from orchestrator.storage.store import Store, StoreError
from orchestrator.storage.verification import Checked, is_stored, local_files
from orchestrator.training.cell_state import MANIFEST
from orchestrator.training.record import latest_checkpoint, set_aside_checkpoint

# The trainer's files that it reads with its own libraries.
_LOADED = re.compile(
    r"(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth|"
    r"adapter_model\.safetensors|(adapter_config|trainer_state)\.json"
)
REASON_LENGTH = 200
KEPT = 2  # checkpoints of a running cell, as the trainer keeps on a folder


class Checkpoints:
    """The checkpoints of one cell, for one of the processes that train it."""

    def __init__(self, store: Store, cell_id: str, rank: int = 0) -> None:
        self.store, self.place = store, ("cells", cell_id)
        own = store.local_path(*self.place) if store.local else _scratch(cell_id, rank)
        self.folder: Path = own
        """Where the trainer writes `checkpoint-N`."""

    def restored(self, name: str) -> Path:
        """The local folder of a complete checkpoint of the store."""
        if self.store.local:
            return self.folder / name
        self.store.copy_out(self.folder / name, *self.place, name)
        return self.folder / name

    def keep(self, update: int) -> None:
        """Upload this process's files of a checkpoint, which has no manifest yet."""
        name = f"checkpoint-{update}"
        if not self.store.local and (self.folder / name).is_dir():
            self.store.copy_in(self.folder / name, *self.place, name)

    def files(self, update: int) -> dict[str, FileProof]:
        """Every file of a checkpoint by its path from there; on a local disk, all are flushed."""
        name = f"checkpoint-{update}"
        files = local_files(self.folder / name)
        for file in self.store.sizes(*self.place, name):
            if file not in files and is_stored(file):  # of another process
                files[file] = self.store.hash_file(*self.place, name, file)
        return files

    def forget_old(self) -> None:
        """Delete all but the newest checkpoints; in a local store the trainer does so itself."""
        if self.store.local:
            return
        folders = self.store.folders(*self.place)
        names = [name for name in folders if re.fullmatch(r"checkpoint-\d+", name)]
        for name in sorted(names, key=lambda n: int(n.split("-")[1]))[:-KEPT]:
            # The manifest goes first: a half-deleted checkpoint is incomplete.
            self.store.delete(*self.place, name, MANIFEST)
            self.store.delete_folder(*self.place, name)

    def clear(self) -> None:
        """Delete the scratch files on this node."""
        if self.store.local:
            return
        for child in self.folder.iterdir():
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)


def resumable_checkpoint(store: Store, cell_id: str) -> str | None:
    """The name of the newest sound checkpoint that can be loaded; None to start over.

    Newer ones are set aside, and logged.
    """
    while (newest := latest_checkpoint(store, cell_id)) is not None:
        unsound = [*_unloadable(store, f"cells/{cell_id}/{newest[0]}")]
        if not unsound:
            return newest[0]
        set_aside_checkpoint(store, cell_id, newest[0], unsound)
    return None


def _unloadable(store: Store, place: str) -> Iterator[Checked]:
    """Files that the trainer reads and that are not of their type: it would fail every time.

    The manifest only shows that they are as they were written, perhaps with other libraries.
    """
    for name in filter(_LOADED.fullmatch, store.names(place)):
        data = store.read_bytes(place, name)
        try:
            _load(name, data)
        except Exception as error:  # what pickle raises depends on the bytes
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                raise
            reason = f"{type(error).__name__}: {one_line(str(error))[:REASON_LENGTH]}"
            yield Checked(f"{place}/{name}", f"cannot be loaded ({reason})")


def _load(name: str, data: bytes) -> None:
    """As the trainer does, on a CPU."""
    import torch
    from safetensors.torch import load
    from transformers import TrainerState
    from transformers.trainer_pt_utils import safe_globals

    if name.endswith(".json"):
        content = json.loads(data)
        if name.startswith("trainer_state"):
            TrainerState(**content)
    elif name.endswith(".safetensors"):
        load(data)
    else:
        with safe_globals():
            torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _scratch(cell_id: str, rank: int) -> Path:
    """A folder of this user on this node, the same for every execution of the cell."""
    base = Path(tempfile.gettempdir()) / f"decile-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise StoreError(f"{base} belongs to another user: set TMPDIR to a folder of your own")
    folder = base / cell_id / str(rank)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
