"""The commands as a user types them; wrong input ends with code 2 and one message."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import small_plan

from orchestrator.cli import main
from orchestrator.schema import SUBSET


@pytest.fixture
def file(tmp_path: Path) -> Path:
    small_plan(tmp_path)
    return tmp_path / "experiments.yaml"


def test_plan_says_what_is_owed_in_words_and_as_json(file: Path, capsys) -> None:
    assert main(["plan", str(file), "-e", "small"]) == 0
    assert "2 cells, 2 owed" in capsys.readouterr().out
    assert main(["plan", str(file), "-e", "small", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["cells_owed"] == 2
    assert [cell["policy"] for cell in view["cells"]] == ["hard", "random"]
    assert view["rollouts_owed"] == 2 * 4 * 2 * 4
    assert {probe["samples_owed"] for probe in view["probes"]} == {40 * 4, 12 * 8}
    assert not (file.parent / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "none.yaml", "-e", "x"], "cannot be read"),
        (["plan", "FILE", "-e", "other"], "one of small"),
        (["run", "FILE", "-e", "small", "--storage", "FILE/x"], "cannot be written"),
        (["run", "FILE", "-e", "small", "--storage", "nowhere://x"], "s3://"),
        (["select", "--probe", "none", "--policy", "hard", "--budget", "1", "--out", "x"], "none"),
        (["ui", "--storage", "none"], "run a sweep first"),
    ],
)
def test_wrong_input_is_one_message_and_code_2(
    file: Path, capsys, arguments: list[str], words: str
) -> None:
    assert main([a.replace("FILE", str(file)) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("decile: ")
    assert words in error
    assert error.count("\n") == 1


def test_select_takes_a_subset_from_a_difficulty_table(tmp_path: Path, capsys) -> None:
    rates = pa.table({"prompt_id": list("abcd"), "pass_rate": [0.5, 0.0, 1.0, 0.2]})
    pq.write_table(rates, tmp_path / "d.parquet")
    out = tmp_path / "subset.parquet"
    arguments = ["select", "--probe", str(tmp_path / "d.parquet"), "--policy", "hard"]
    assert main([*arguments, "--budget", "0.5", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["size"] == 2
    chosen = pq.read_table(out)
    assert chosen.schema.equals(SUBSET)
    assert chosen["prompt_id"].to_pylist() == ["b", "d"]
    assert main([*arguments, "--budget", "9", "--out", str(out)]) == 2


def test_ls_lists_names_with_their_first_lines(file: Path, capsys) -> None:
    for what, name in (
        ("tasks", "shuffled_objects"),
        ("policies", "hard"),
        ("models", "stub"),
        ("experiments", "small"),
    ):
        assert main(["ls", what, str(file)]) == 0
        assert name in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'ray', 'mlflow', 'pyarrow', 'pydantic', 'numpy'}"
    script = (
        "import sys\nfrom orchestrator.cli import main\n"
        f"try:\n    main(['--help'])\nexcept SystemExit:\n    print({heavy} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip().endswith("set()")
