"""What somebody may leave in a storage: links, FIFOs, other names; and the locks of NFS."""

import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from nfs_locks import nfs_flock
from sweeps import NAME, decile, start, wait_for, workers

from chaos.cases import (
    Case,
    differences,
    ends,
    finish,
    sweep,
    tracebacks,
)

MEMORY = 9_000_000 * 1024  # bytes of address space for doctor
NOT_UTF8 = b"caf\xe9"


def cells_of(runs: Path) -> list[Path]:
    """The folders of cells, finished ones first."""
    folders = [folder for folder in (runs / "cells").iterdir() if folder.is_dir()]
    return sorted(folders, key=lambda folder: (not (folder / "result.json").exists(), folder))


def links(runs: Path) -> None:
    """Links to a cell, to their own folder and to the one above: paths without end."""
    cells = cells_of(runs)
    for folder in (*cells, *(runs / "probes").iterdir()):
        (folder / "up").symlink_to("..")
    (runs / "cells" / "best").symlink_to(cells[0].name)
    (runs / "cells" / "loop").symlink_to(".")


def fifos(runs: Path) -> None:
    """A FIFO in each folder of a cell, its checkpoints included."""
    for folder in [folder for folder in (runs / "cells").rglob("*") if folder.is_dir()]:
        os.mkfifo(folder / "pipe.json")


def names(runs: Path) -> None:
    """A file and a folder whose names are not UTF-8, in every folder."""
    kinds = [runs / kind for kind in ("cells", "probes", "subsets", "sweeps")]
    below = [folder for kind in kinds for folder in kind.rglob("*") if folder.is_dir()]
    for folder in map(os.fsencode, (*kinds, *below)):
        Path(os.fsdecode(folder + b"/" + NOT_UTF8 + b".json")).write_text("{}")
        os.mkdir(folder + b"/" + NOT_UTF8)
        Path(os.fsdecode(folder + b"/" + NOT_UTF8 + b"/result.json")).write_text("{}")


def linked_cell(runs: Path) -> None:
    """The folder of a cell is elsewhere."""
    cell = cells_of(runs)[0]
    cell.rename(runs.parent / "elsewhere")
    cell.symlink_to(runs.parent / "elsewhere")


def linked_root(runs: Path) -> None:
    """The storage itself is elsewhere."""
    runs.rename(runs.parent / "disk")
    runs.symlink_to("disk")


STRAYS: tuple[Callable[[Path], None], ...] = (links, fifos, names, linked_cell, linked_root)


def entries(folder: Path, stores: dict[str, Path], reference: Path) -> Iterator[Case]:
    """Each of STRAYS in a copy of each of `stores`, as in `damaged_files`."""
    for state in sorted(stores):
        for stray in STRAYS:
            place = folder / f"{stray.__name__}-{state}"
            shutil.copytree(stores[state], place)
            runs, file, began = place / "runs", sweep(place), time.monotonic()
            kinds = ["probes", "subsets", *["cells"] * (state == "finished")]
            stored = [f for kind in kinds for f in (runs / kind).rglob("*") if f.is_file()]
            before = {each: each.read_bytes() for each in stored}
            stray(runs)
            case = Case(f"{stray.__name__.replace('_', ' ')}, {state}")
            # The trainer would read a FIFO in a checkpoint: doctor renames it.
            case.problems = _repaired(file, int(stray is fifos and state == "in training"))
            if stray is linked_cell:
                case.problems += _refused(file)
                cell = next(each for each in (runs / "cells").iterdir() if each.is_symlink())
                cell.unlink()
                (place / "elsewhere").rename(cell)
            case.problems += finish(file)
            case.problems += ends("report", str(file), "-e", NAME, folder=place)
            case.problems += _repaired(file) + differences(file, reference)
            case.problems += [
                f"{each.relative_to(runs)} is lost"
                for each, data in before.items()
                if not each.is_file() or each.read_bytes() != data
            ]
            case.seconds = time.monotonic() - began
            yield case
            shutil.rmtree(place)


def _repaired(file: Path, code: int = 0) -> list[str]:
    """Problems of `doctor --repair` on a storage in which all files are sound; its exit code."""
    runs, limits = file.parent / "runs", resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))  # the command inherits it
    problems = ends("doctor", "--storage", str(runs), "--repair", folder=file.parent, code=code)
    resource.setrlimit(resource.RLIMIT_AS, limits)
    unsound = [each for each in runs.rglob("*.unsound") if each.is_file()]
    return problems + [f"{each.relative_to(runs)} was set aside" for each in unsound]


def _refused(file: Path) -> list[str]:
    """Problems of commands that must end with an error about a link."""
    problems = []
    for name in ("run", "report"):
        process = decile(name, str(file), "-e", NAME, folder=file.parent)
        output = process.stdout + process.stderr
        problems += tracebacks(output)
        if process.returncode != 2 or " is a link, " not in output:
            problems.append(f"{name} exits with {process.returncode}: {output[-500:]}")
    return problems


def nfs(folder: Path, reference: Path) -> Iterator[Case]:
    """A sweep, a second and a third driver beside it, and a rerun, with the locks of NFS."""
    place = folder / "nfs"
    place.mkdir()
    library = nfs_flock(place)
    if library is None:
        yield Case("locks of NFS (skipped: needs a C compiler)", 0)
        return
    file, began, case = sweep(place), time.monotonic(), Case("locks of NFS")
    logs = {name: place / f"{name}.log" for name in ("first", "waiting")}
    first = start(file, logs["first"], LD_PRELOAD=library)
    try:
        wait_for(lambda: _has_loaded(first.pid, library), first, logs["first"])
    except AssertionError as error:  # it has ended
        case.problems.append(str(error)[-500:])
    waiting = start(file, logs["waiting"], "--wait", LD_PRELOAD=library)
    second = decile("run", str(file), "-e", NAME, folder=place, LD_PRELOAD=library)
    if second.returncode != 1 or "another driver runs" not in second.stderr:
        case.problems.append(f"a second driver exits with {second.returncode}: {second.stderr}")
    for name, driver in (("first", first), ("waiting", waiting)):
        if driver.wait(600):
            case.problems.append(f"the {name} driver exits with {driver.returncode}")
        case.problems += tracebacks(logs[name].read_text())
    case.problems += finish(file, LD_PRELOAD=library)
    case.problems += differences(file, reference)
    case.seconds = time.monotonic() - began
    yield case


def _has_loaded(pid: int, library: str) -> bool:
    """Whether a Ray worker of a driver has loaded a library."""
    for worker in workers(pid, "ray::"):
        with suppress(OSError):  # it has ended
            if library in Path(f"/proc/{worker.pid}/maps").read_text():
                return True
    return False
