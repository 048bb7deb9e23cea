"""Where a cell's trainer writes its checkpoints: in the store, or on the node and copied to it.

A trainer writes to a local folder. In a file system store, that is the cell's own folder. With an
object store the trainer writes to a scratch folder on its node, every checkpoint is uploaded before
its manifest, and a cell that resumes downloads it again, on whichever node. Either way a kill costs
the updates since the last checkpoint.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from orchestrator.storage.proof import FileProof
from orchestrator.storage.store import Store, StoreError
from orchestrator.storage.verification import is_stored, local_files
from orchestrator.training.cell_state import MANIFEST

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


def _scratch(cell_id: str, rank: int) -> Path:
    """A folder of this user on this node, the same for every execution of the cell."""
    base = Path(tempfile.gettempdir()) / f"decile-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise StoreError(f"{base} belongs to another user: set TMPDIR to a folder of your own")
    folder = base / cell_id / str(rank)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
