"""What commands, the API and tests import: heavy libraries cost every user seconds."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_graph import HEAVY, ROOT, TOPS, pure_modules
from processes import LOADED, loaded_libraries, output_of

PARTS = {"torch", "ray", "trl", "peft", "mlflow", "vllm"}


def test_importing_the_api_loads_nothing() -> None:
    import decile as api

    assert not loaded_libraries("import decile") & (HEAVY | {"pyarrow", "numpy"})
    assert set(api.__all__) <= set(dir(api))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        api.nothing  # noqa: B018


def test_importing_pure_modules_loads_no_heavy_library() -> None:
    assert not loaded_libraries(f"import {', '.join(pure_modules())}") & HEAVY


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        (["--version"], {"pyarrow", "pydantic", "numpy", "scipy"}),
        (["--help"], {"pyarrow", "pydantic", "numpy", "scipy"}),
        (["ls", "tasks"], {"scipy", "pandas"}),
        (["plan", "experiments.yaml", "-e", "quickstart", "--json"], set[str]()),
    ],
)
def test_a_command_loads_no_library_that_it_does_not_need(
    tmp_path: Path, command: list[str], absent: set[str]
) -> None:
    if command[0] == "plan":
        command = [*command, "--storage", str(tmp_path)]
    code = (
        "from orchestrator.cli.main import main\n"
        f"try: assert main({command}) == 0\nexcept SystemExit as end: assert not end.code"
    )
    assert not loaded_libraries(code) & (PARTS | {"transformers", "matplotlib"} | absent)


COMPARE = "print(decile.compare({{'a': '{0}/a.csv', 'b': '{0}/b.csv'}}))"
DIAGNOSE = "print(decile.diagnose('{0}/log.csv'))"
REPLAY = "print(decile.replay('{0}/rates.csv', budget=3))"
# After a call, the lines of the source that it has loaded.
LINES = """
import sys
from pathlib import Path
files = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
own = [Path(file) for file in files if file and file.startswith(%r)]
print(sum(len(file.read_text().splitlines()) for file in own))
"""


@pytest.mark.parametrize(("call", "most"), [(COMPARE, 6_750), (DIAGNOSE, 6_450), (REPLAY, 11_600)])
def test_a_call_on_small_files_loads_no_sweep(call: str, most: int, tmp_path: Path) -> None:
    """Neither its libraries nor its modules, also of those that are loaded by their names."""
    for name, scores in {"a": (1, 1, 0, 1), "b": (0, 1, 0, 0)}.items():
        rows = [f"q{number},{score}" for number, score in enumerate(scores)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,correct", *rows]))
    rows = [f"{number // 4},p{number % 2},{number % 3}" for number in range(40)]
    (tmp_path / "log.csv").write_text("\n".join(["update,prompt,reward", *rows]))
    rows = [f"p{number % 9},{number // 9},{number % 9}/8" for number in range(36)]
    (tmp_path / "rates.csv").write_text("\n".join(["prompt_id,visit,pass_rate", *rows]))
    code = f"import decile\n{call.format(tmp_path)}"
    tops = tuple(f"{ROOT / top}/" for top in TOPS)
    *_, libraries, lines = output_of(code + LOADED + LINES % (tops,)).splitlines()
    assert not {*libraries.split()} & (PARTS | {"transformers", "datasets"})
    assert 3_000 < int(lines) <= most


def test_selecting_from_a_table_loads_neither_samples_nor_a_sweep(tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"prompt_id": ["a", "b"], "pass_rate": [0.5, 1.0]}), table)
    options = ["--policy", "hard", "--budget", "1", "--out", str(tmp_path / "subset.parquet")]
    code = (
        "import sys\nfrom orchestrator.cli.main import main\n"
        f"assert main(['select', '--probe', {str(table)!r}, *{options}]) == 0\n"
        "absent = ('orchestrator.planning.cells', 'orchestrator.probing.probe_folder')\n"
        "assert not {*absent} & {*sys.modules}"
    )
    assert not loaded_libraries(code) & (PARTS | {"transformers", "datasets"})


def test_making_the_reference_loads_no_heavy_library() -> None:
    code = "from docs.generate import pages; pages()"
    assert not loaded_libraries(code) & (PARTS | {"transformers"})


def test_checking_a_file_loads_no_heavy_library() -> None:
    code = (
        "from pathlib import Path; from orchestrator.config.catalog import load_config; "
        "load_config(Path('experiments.yaml'))"
    )
    assert not loaded_libraries(code) & (PARTS | {"transformers", "scipy"})


def test_collecting_pure_tests_loads_no_heavy_library() -> None:
    """What stands in their modules; what a test starts is checked in tests/pure/conftest.py."""
    arguments = ["--collect-only", "--quiet", "-p", "no:cacheprovider", "tests/pure"]
    code = f"import pytest; assert pytest.main({arguments}) == 0"
    assert not loaded_libraries(code) & PARTS
