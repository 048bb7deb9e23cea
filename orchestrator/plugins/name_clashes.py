"""Advice on user modules with names that prevent other imports."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from orchestrator.plugins.project_modules import PACKAGES, project_folders


def name_clash(error: BaseException, target: str = "") -> str:
    """Which user module to rename if an import failed because of its name; else "".

    A different module of that name was imported instead, or it was imported instead of a library.
    target: the reference to import.
    """
    names = [target.partition(":")[0].partition(".")[0]] if target else []
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AttributeError) and isinstance(cause.obj, ModuleType):
            names.append(cause.obj.__name__.partition(".")[0])
        elif isinstance(cause, ImportError):
            names.append(str(cause.name).partition(".")[0])
        cause = cause.__cause__ or cause.__context__
    if not names:
        return ""
    folders = [os.getcwd(), *project_folders()]
    for name in names:
        origin = getattr(sys.modules.get(name), "__file__", None)
        own = [Path(folder, file) for folder in folders for file in (f"{name}.py", name)]
        for file in own:
            is_module = file.is_file() or (file / "__init__.py").is_file()
            if origin and is_module and not _holds(file, origin):
                owner = "Decile's own package" if name in PACKAGES else f"imported from {origin}"
                return f"module {name!r} is {owner}: rename {file}"
    return _replaced_library(folders)


def _holds(module: Path, file: str) -> bool:
    """Whether a module, or package, is in this file."""
    return Path(file).resolve().is_relative_to(module.resolve())


def _replaced_library(folders: Sequence[str]) -> str:
    """Advice on a module of these folders that was imported instead of a library; else ""."""
    real = {os.path.realpath(folder) for folder in folders}
    others = [folder for folder in sys.path if os.path.realpath(folder) not in real]
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if "." in name or name in PACKAGES or not origin:
            continue
        file = Path(origin)
        if file.name == "__init__.py":
            file = file.parent
        if os.path.realpath(file.parent) not in real:
            continue
        if name in sys.stdlib_module_names or PathFinder.find_spec(name, others):
            return f"{file} is imported in place of the library {name}: rename it"
    return ""
