"""`decile doctor --storage`: whether all files of a storage prove themselves."""

import shlex
import sys
import time
from collections.abc import Iterator

from cluster.redaction import redact
from orchestrator.pipeline.audit import KINDS, Audit, audit, remedy, set_aside
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store

SHOWN = 5  # paths of a group; files that fail verification are all listed
PROGRESS_SECONDS = 5.0


def check_storage(uri: str | None, *, repair: bool = False) -> int:
    """Check a storage and print the result; 0 if no file fails verification, else 1.

    With `repair`, files that fail are set aside. Raises UserError where there is no storage.
    """
    if uri is None:
        raise UserError("--repair needs --storage: write the storage whose files to set aside")
    store = Store(uri)
    if not any(store.sizes(kind) for kind in KINDS):
        raise UserError(
            f"storage {store.uri} holds no results (no {', '.join(KINDS)}): "
            "write the `storage` of the experiments file"
        )
    result = audit(store, _Progress())
    if repair:
        unsound = set_aside(store, result.unsound)
    else:
        unsound = [f"{each.path} {each.problem}: {remedy(each)}" for each in result.unsound]
    for line in _lines(result, unsound):
        print(redact(line))
    if not unsound:
        return 0
    if repair:
        print("Rerun decile run to make these files again.")
    else:
        repairing = ["decile", "doctor", "--storage", redact(uri), "--repair"]
        print(f"decile run sets them aside, or: {shlex.join(repairing)}")
    return 1


def _lines(result: Audit, unsound: list[str]) -> Iterator[str]:
    for kind in KINDS:
        files = [path for path in result.unverified if path.startswith(f"{kind}/")]
        old = f", {len(files):,} of an older version without a proof ({_paths(files)})"
        sound = result.sound[kind]
        plural = "" if sound == 1 else "s"
        yield f"ok    {kind}: {sound:,} file{plural} verified{old if files else ''}"
    for line in unsound:
        yield f"FAIL  {line}"
    if result.in_training:
        yield f"note  not checked, in training: {_paths(result.in_training)}"
    if result.ignored:
        yield f"note  ignored: {len(result.ignored):,} ({_paths(result.ignored)})"
    if result.temporary:
        yield (
            f"note  temporary files, of runs that were killed or are running: "
            f"{len(result.temporary):,} ({_paths(result.temporary)})"
        )
    if result.set_aside:
        yield f"note  set aside: {len(result.set_aside):,} ({_paths(result.set_aside)})"


def _paths(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


class _Progress:
    """Prints how far the check is, every few seconds."""

    def __init__(self) -> None:
        self.printed = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.printed > PROGRESS_SECONDS:
            self.printed = time.monotonic()
            print(f"checked {done:,} of {total:,} probes, subsets and cells", file=sys.stderr)
