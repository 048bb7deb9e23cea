"""Verifies the files of a storage, and says which work is done again if one fails.

`decile run` checks the files of its plan before anything else, `decile doctor --storage` all of
them. A file that fails is only renamed, to `<name>.unsound`, and never read again. The state of
probes, subsets and cells follows from their files, so it shows what is missing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from orchestrator.planning.plan import Plan
from orchestrator.probing.probe_folder import Part, ProbeFolder, read_part
from orchestrator.report.looks import LOOKS
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import SET_ASIDE, Store
from orchestrator.storage.verification import Checked, check_file, is_stored
from orchestrator.training.cell_folder import ADAPTERS, MANIFEST, CellFolder
from orchestrator.training.cell_paths import CELLS, RESULT

# Kind and name: the folder of a probe or cell, the file of a subset or sweep.
Unit = tuple[str, str]
OnPart = Callable[[str, Part], None]  # called with a probe's key and one of its parts
FILES = ("subsets", "sweeps", LOOKS)  # kinds without folders
KINDS = ("probes", CELLS, *FILES)
THREADS = 8

TRAINED_AGAIN = "the cell is trained again"
UNREAD = "nothing reads it"
RESUMED = "the cell resumes from the checkpoint before it"
RESUMED_IF_NEEDED = "if not yet evaluated, the cell resumes from a checkpoint before it"
# What `decile run` does about a file that was set aside; the first pattern that fits.
REMEDIES = (
    (r"probes/\w+/marks-", "its answers are marked again"),
    (r"probes/.*\.parquet", "its samples are drawn again"),
    (r"subsets/", "the subset is selected again"),
    (rf"{CELLS}/\w+/checkpoint-", RESUMED),
    (rf"{CELLS}/\w+/adapters/", RESUMED_IF_NEEDED),
    (rf"{CELLS}/\w+/evaluated/", "the checkpoint is evaluated again"),
    (rf"{CELLS}/\w+/micro_batch", "the cell goes on without it"),
    (rf"{CELLS}/\w+/(result\.json|adapter/|\w+\.parquet)", TRAINED_AGAIN),
    (r"sweeps/", "it is written again, without the hours used and the dates of its claims"),
    (rf"{LOOKS}/", "this look at the results is forgotten"),
    (
        rf"{CELLS}/\w+/((cell|ledger)\.json|README\.md)$|probes/\w+/key\.json$",
        "it is written again",
    ),
    (r"", UNREAD),
)


@dataclass
class Audit:
    """The files of a storage: numbers of sound ones by kind, and the paths of all others.

    unverified: files without a hash of their own that no manifest lists; temporary: of killed or
    running runs; in_training: cells that were not checked, because a trial is writing them;
    ignored: with the reason, for example links.
    """

    sound: Counter[str] = field(default_factory=Counter)
    unverified: list[str] = field(default_factory=list)
    unsound: list[Checked] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    in_training: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def remedy(unsound: Checked) -> str:
    """What `decile run` does about an unsound file, as the end of a sentence."""
    text = next(text for pattern, text in REMEDIES if re.match(pattern, unsound.path))
    needed = text in (TRAINED_AGAIN, RESUMED, RESUMED_IF_NEEDED)
    return UNREAD if needed and not unsound.listed else text


def audit(store: Store, progress: Callable[[int, int], None]) -> Audit:
    """Check every file of a storage; `progress` is called with (units checked, units in all)."""
    folders = [(kind, name) for kind in ("probes", CELLS) for name in store.folders(kind)]
    files = [(kind, name) for kind in FILES for name in store.sizes(kind)]
    units = [*folders, *(unit for unit in files if "/" not in unit[1])]  # not a lease's claims
    result = Audit()
    for kind in KINDS:
        for entry in sorted(store.entries(kind, recursive=True), key=lambda entry: entry.path):
            path = f"{kind}/{entry.path}"
            if entry.problem:
                result.ignored.append(f"{path} {entry.problem}")
            elif path.endswith(".tmp"):
                result.temporary.append(path)
            elif path.endswith(SET_ASIDE):
                result.set_aside.append(path)
    for done, ((kind, name), checked_files) in enumerate(
        _at_once(partial(check_unit, store), units)
    ):
        progress(done, len(units))
        if kind == CELLS and CellFolder(store, name).is_training():
            result.in_training.append(f"{kind}/{name}")
        for checked in checked_files:
            if checked.problem:
                result.unsound.append(checked)
            elif checked.proven:
                result.sound[kind] += 1
            else:
                result.unverified.append(checked.path)
    progress(len(units), len(units))
    return result


def repair_plan(
    plan: Plan, store: Store, kinds: Sequence[str] = KINDS, folders: Sequence[ProbeFolder] = ()
) -> list[str]:
    """Set aside the files of a plan that fail verification; returns a sentence for each.

    No sweep reads the adapters of finished cells: only their sizes are compared. The parts of
    probes are read here, and not again by their `folders`.
    """

    def keep(key: str, part: Part) -> None:
        for folder in folders:
            if folder.spec.key == key:
                folder.add_part(part)

    names = {
        "probes": [spec.key for spec in plan.probes],
        "subsets": [f"{cell.subset_key}.parquet" for cell in plan.cells],
        CELLS: [cell.cell_id for cell in plan.cells],
        "sweeps": [f"{plan.name}.json"],
        LOOKS: store.names(LOOKS),
    }
    units = [(kind, name) for kind in kinds for name in dict.fromkeys(names[kind])]
    check = partial(check_unit, store, unread="adapter/", on_part=keep)
    checked = [each for _, files in _at_once(check, units) for each in files]
    lines = set_aside(store, [each for each in checked if each.problem])
    if CELLS not in kinds:
        return lines
    for cell in plan.cells:
        folder = CellFolder(store, cell.cell_id)
        if not folder.is_training():
            lines += folder.forget_unusable(cell)
    return lines


def set_aside(store: Store, unsound: Iterable[Checked]) -> list[str]:
    """Set aside unsound files, and the manifests that list them; returns a sentence for each."""
    lines = []
    for checked in unsound:
        lines.append(f"{checked.path} {checked.problem}: set aside; {remedy(checked)}")
        store.set_aside(checked.path)
        folder = re.match(rf"{CELLS}/\w+/(checkpoint-\d+|{ADAPTERS}/\d+)(?=/)", checked.path)
        if checked.listed and folder:
            store.set_aside(folder[0], MANIFEST)
        elif checked.listed and remedy(checked) == TRAINED_AGAIN:
            store.set_aside(*checked.path.split("/")[:2], RESULT)
    return lines


def _at_once(
    check: Callable[[Unit], Iterable[Checked]], units: Sequence[Unit]
) -> Iterator[tuple[Unit, list[Checked]]]:
    """Check several units at once, because object stores answer slowly; keeps their order."""
    with ThreadPoolExecutor(THREADS) as pool:
        yield from zip(units, pool.map(lambda unit: [*check(unit)], units), strict=True)


def check_unit(
    store: Store, unit: Unit, *, unread: str | None = None, on_part: OnPart = lambda key, part: None
) -> Iterator[Checked]:
    """Check the files of one probe, subset, cell or sweep; `unread` as in `check_folder`.

    `on_part` is called with a probe's key and each sound part.
    """
    kind, name = unit
    place = f"{kind}/{name}"
    if kind == CELLS:
        yield from CellFolder(store, name).check(unread)
    if kind == "probes":
        for path in (f"{place}/{file}" for file in store.sizes(place)):
            if is_stored(path):
                yield _check_probe_file(store, name, path, on_part)
    if kind in FILES and is_stored(name) and store.exists(place):
        yield check_file(store, place)


def _check_probe_file(store: Store, key: str, path: str, on_part: OnPart) -> Checked:
    name = path.removeprefix(f"probes/{key}/")
    if "/" in name or not name.endswith(".parquet"):
        checked = check_file(store, path)
        if name != "key.json" or checked.problem or canonical_hash(store.read_json(path)) == key:
            return checked
        return Checked(path, "describes another probe")
    try:
        on_part(key, read_part(store, key, name))
    except (ValueError, pa.ArrowException) as error:
        return Checked(path, str(error).splitlines()[0])
    except FileNotFoundError:
        return Checked(path, "is missing")
    return Checked(path)
