"""Where a cell's trainer keeps its files: in the store, or on the node and copied to the store.

A trainer writes to a folder. Where the storage is one, that folder is the cell's own. An object
store is none: the trainer then writes to scratch on its node, every checkpoint is copied up whole
before the record's manifest makes it count, and a cell that goes on copies it down again, on
whatever node. A kill costs the updates since the last checkpoint either way.
"""

import os
import shutil
import tempfile
from pathlib import Path

from orchestrator.storage.store import Store, StoreError
from orchestrator.training.cell_state import MANIFEST

KEPT = 2  # checkpoints of a running cell, as the trainer keeps on a folder


class Checkpoints:
    """The checkpoints of one cell, as one of the processes that train it sees them."""

    def __init__(self, store: Store, cell_id: str, rank: int = 0) -> None:
        self.store, self.place = store, ("cells", cell_id)
        own = store.local_path(*self.place) if store.local else _scratch(cell_id, rank)
        self.folder: Path = own
        """Where the trainer writes `checkpoint-N`."""

    def restored(self, name: str) -> Path:
        """The local folder of a whole checkpoint of the store."""
        if self.store.local:
            return self.folder / name
        self.store.copy_out(self.folder / name, *self.place, name)
        return self.folder / name

    def keep(self, update: int) -> None:
        """Copy to the store what this process has of a checkpoint, which has no manifest yet."""
        name = f"checkpoint-{update}"
        if not self.store.local and (self.folder / name).is_dir():
            self.store.copy_in(self.folder / name, *self.place, name)

    def forget_old(self) -> None:
        """Delete all but the newest checkpoints; the trainer does so itself in a folder."""
        if self.store.local:
            return
        names = [n for n in self.store.folders(*self.place) if n.startswith("checkpoint-")]
        for name in sorted(names, key=lambda n: int(n.split("-")[1]))[:-KEPT]:
            self.store.delete(*self.place, name, MANIFEST)  # never whole again, come what may
            self.store.delete_folder(*self.place, name)

    def clear(self) -> None:
        """Leave nothing on the node."""
        if self.store.local:
            return
        for child in self.folder.iterdir():
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)


def _scratch(cell_id: str, rank: int) -> Path:
    """A folder of this user on this node, the same for every try of the cell."""
    base = Path(tempfile.gettempdir()) / f"decile-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise StoreError(f"{base} is somebody else's: set TMPDIR to a folder of your own")
    folder = base / cell_id / str(rank)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
