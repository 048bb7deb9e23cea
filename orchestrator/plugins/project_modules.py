"""The import order: Decile's own packages, then libraries, then the user's folder.

A user's folder may have modules with the name of a package of Decile (`tasks.py`), a standard
module (`statistics.py`) or an optional library (a folder `vllm` or `wandb`). They must not replace
the real ones, but `package.module:attribute` must still find the user's module.
"""

import inspect
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PACKAGES = ("decile", "orchestrator", "tasks", "policies", "cluster")
_IMPORT_SYSTEM = ("importlib", "_frozen_importlib")
# Ray's unpickling imports the modules of objects that a driver sends to its workers.
_UNPICKLERS = ("ray._private.serialization", "ray._private.function_manager")
# A suffix for folders that Ray puts first on every worker's path. Such a folder does not exist, so
# that nothing is imported from it before Decile, not even by Ray's own actors.
PROJECT_MARK = f"{os.sep}.decile-project"
ROOT = Path(__file__).resolve().parents[2]


class _OwnPackages:
    """Finds Decile's packages beside this one, regardless of the order of sys.path."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(ROOT)]) if name in PACKAGES else None


class _ProjectModules:
    """Finds the user's modules: for references, unpickled values and the user's other modules.

    Libraries cannot find them, because many look for optional libraries by name and mistake any
    folder of that name for an installation.
    """

    def __init__(self) -> None:
        self.folders: list[str] = []
        self._names: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or not self._is_wanted():
            return None
        spec = PathFinder.find_spec(name, self.folders)
        if spec is not None:
            self._names.add(name)
        return spec

    def _is_wanted(self) -> bool:
        """Whether the import is from EntryPoint.load, Ray's unpickling or a module found here."""
        frame = inspect.currentframe()
        while frame is not None:
            module = str(frame.f_globals.get("__name__"))
            if module == "importlib.metadata" or module in _UNPICKLERS:
                return True
            if module != __name__ and module.partition(".")[0] not in _IMPORT_SYSTEM:
                return module.partition(".")[0] in self._names
            frame = frame.f_back
        return False


_OWN, _PROJECT = _OwnPackages(), _ProjectModules()


def pin_own_packages() -> None:
    """Import Decile's packages from this installation; in a Ray worker, also put the user's last.

    It runs when `orchestrator` is imported, before any other package of Decile. Raises ImportError
    if a script or notebook has already imported a module of the same name.
    """
    for name in PACKAGES:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and Path(file).resolve().parents[1] != ROOT:
            raise ImportError(
                f"{name} is {file}, but Decile has a package of that name: "
                "import decile first, or rename that file"
            )
    if _OWN not in sys.meta_path:
        sys.meta_path.insert(0, _OWN)
    if Path(sys.argv[0]).name == "default_worker.py":
        folders = _folders_from_driver(sys.path, str(Path(sys.argv[0]).parent))
        sys.path[:] = [folder for folder in sys.path if folder not in folders]
        add_project(folder.removesuffix(PROJECT_MARK) for folder in folders)


def add_project(folders: Iterable[str]) -> None:
    """Let references find the modules of these folders, the last folder first."""
    if _PROJECT not in sys.meta_path:
        sys.meta_path.append(_PROJECT)
    for folder in folders:
        if folder not in _PROJECT.folders:
            _PROJECT.folders.insert(0, folder)


def project_folders() -> list[str]:
    """The folders of `add_project`, in search order."""
    return list(_PROJECT.folders)


def _folders_from_driver(path: Sequence[str], worker: str) -> list[str]:
    """The folders of `path` that Ray added for the driver, or for a job's working directory.

    Ray inserts the driver's folders before its own (`worker` and its neighbours); the copy of a
    job's working directory comes with PYTHONPATH.
    """
    first = path[: path.index(worker)] if worker in path else []
    ray = str(Path(worker).parents[1])
    job = f"{os.sep}working_dir_files{os.sep}"
    folders = [folder for folder in first if not folder.startswith(ray)]
    folders += [folder for folder in path if job in folder or folder in ("", os.getcwd())]
    return list(dict.fromkeys(folders))
