"""Fixtures and markers of all tests."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any

import pytest
import sweeps
from filelock import FileLock
from hypothesis import Phase, settings
from sweeps import ONE_CPU, experiments, run
from write_steps import Host, available, host

from benchmarks.local_cluster import ROOT
from orchestrator.storage.store import Store

TESTS = Path(__file__).parent
LONGEST = "test_object_store.py"
LOCAL_RAY = ExitStack()
gc.disable()  # a third of the time in which torch, TRL and MLflow are imported
# A shell in the background ignores the first, nohup the second; commands would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.environ.pop("COLUMNS", None)  # it would set the width of what commands print
# Time is never asserted: a test may be slow on a busy machine.
settings.register_profile("default", deadline=None)
settings.register_profile("check", deadline=None, max_examples=25)  # make check
# make test and make test-all: the same examples each time.
settings.register_profile("test", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("all", deadline=None, derandomize=True)
settings.register_profile(  # make mutants: that an example fails is enough, it need not be small
    "mutants",
    deadline=None,
    derandomize=True,
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],
)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile") == "mutants":
        sys.setrecursionlimit(20_000)  # a call of a mutated function takes three frames


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, which is its folder, and put those that start Ray first.

    Processes of xdist take one file after the other (make: --dist loadfile): sweeps take minutes,
    the pure tests of a file a second, so that all processes end together. The longest file makes
    `finished`, and the others that use it come later, so that no process waits for it. After the
    last sweep, the Ray of `local_ray` ends.
    """
    later = {item.path for item in items if "finished" in getattr(item, "fixturenames", ())}

    def order(item: pytest.Item) -> tuple[bool, ...]:
        pure = item.get_closest_marker("pure") is not None
        return (not starts_ray(item), pure, item.path.name != LONGEST, item.path in later)

    for item in items:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
    items.sort(key=order)


def starts_ray(item: pytest.Item) -> bool:
    return item.path.parent.name == "sweeps"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Say in one line at the end what was skipped, and how to have it run."""
    yield
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        counts = [f"{count} × {why.removeprefix('Skipped: ')}" for why, count in reasons.items()]
        terminalreporter.write_line(f"skipped: {'; '.join(counts)}", yellow=True)


def pytest_collection_finish() -> None:
    """Collect garbage from now on, except what was imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_a_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests run in an empty folder: what `make demo` leaves in the repository is no test's."""
    with chdir(tmp_path_factory.mktemp("current")):
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run of the tests share."""
    own = tmp_path_factory.getbasetemp()
    sweeps.shared_folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return sweeps.shared_folder


def root_entries() -> set[str]:
    """What is in the repository's folder, but for caches and what pip writes there."""
    names = {name for name in os.listdir(ROOT) if name[0] not in "._" and name != "build"}
    return {name for name in names if not name.endswith(".egg-info")}


@pytest.fixture(autouse=True)
def _the_repository_is_left_alone() -> Iterator[None]:
    """What a test writes belongs into a folder of its own, not into the one it is started in."""
    before = root_entries()
    yield
    assert root_entries() - before == set()


@pytest.fixture(scope="session")
def finished(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small finished sweep; its storage is `runs` in the same folder.

    It runs once for all processes; each has a copy.
    """
    whole, own = shared_folder / "finished", tmp_path_factory.mktemp("finished") / "copy"
    with FileLock(shared_folder / "finished.lock"):
        if not whole.exists():
            part = Path(tempfile.mkdtemp(dir=shared_folder))  # another one where a sweep failed
            run(experiments(part))
            part.rename(whole)
    shutil.copytree(whole, own)
    return own / "experiments.yaml"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End the Ray of `local_ray` after the tests that need it."""
    if not starts_ray(item):
        LOCAL_RAY.close()


def pytest_sessionfinish() -> None:
    LOCAL_RAY.close()


@pytest.fixture
def local_ray(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The folder of a Ray that this process is connected to, in this test and in later ones.

    A sweep in this process needs no other Ray and no other process that imports all libraries. It
    and its workers import modules from this folder: a name is used by one test only.
    """
    import ray

    from cluster.session import ray_session

    folder = tmp_path_factory.getbasetemp() / "local_ray"
    if not ray.is_initialized():
        folder.mkdir(exist_ok=True)
        variables = ONE_CPU | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
        with chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.delenv("RAY_ADDRESS", raising=False)
            for name, value in variables.items():
                patch.setenv(name, value)
            LOCAL_RAY.enter_context(ray_session())
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A process whose children can be killed at any of their writes."""
    if not available():
        pytest.skip("a library that counts writes cannot be compiled and loaded here")
    with host(tmp_path_factory.mktemp("host")) as running:
        yield running


@pytest.fixture
def no_ray() -> None:
    """This process is not connected to a Ray: the test starts one, or loses it."""
    LOCAL_RAY.close()


@pytest.fixture(scope="session")
def empty_database(shared_folder: Path) -> Path:
    """An MLflow database without runs: creating one takes seconds, copying it does not."""
    return sweeps.empty_database()


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Store:
    """A store with an empty MLflow database in it."""
    store = Store(str(tmp_path / "runs"))
    shutil.copyfile(empty_database, store.local_path() / "mlflow.db")
    return store
