"""The commands as a user types them; invalid input ends with code 2 and one message."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import cell_record, finished_cell, finished_sweep, small_plan
from processes import loaded_libraries
from remedies import problems

from orchestrator.cli.main import main
from orchestrator.pipeline.manifest import write_manifest
from orchestrator.storage.schema import SUBSET
from orchestrator.storage.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    small_plan(tmp_path)
    return tmp_path / "experiments.yaml"


def test_plan_prints_the_cells_as_text_and_as_json(file: Path, capsys) -> None:
    assert main(["plan", str(file), "-e", "small"]) == 0
    assert "2 cells, 2 to run" in capsys.readouterr().out
    assert main(["plan", str(file), "-e", "small", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["cells_to_run"] == 2
    assert [cell["policy"] for cell in view["cells"]] == ["hard", "random"]
    assert view["rollouts_to_run"] == 2 * 4 * 2 * 4
    assert {probe["missing_samples"] for probe in view["probes"]} == {40 * 4, 12 * 8}
    assert not (file.parent / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "none.yaml", "-e", "x"], "cannot be read"),
        (["plan", "FILE", "-e", "other"], "one of small"),
        (["run", "FILE", "-e", "small", "--storage", "FILE/x"], "cannot be written"),
        (["run", "FILE", "-e", "small", "--storage", "nowhere://x"], "s3://"),
        (["select", "--probe", "none", "--policy", "hard", "--budget", "1", "--out", "x"], "none"),
        (["ui", "--storage", "none"], "none"),
    ],
)
def test_invalid_input_is_one_message_and_code_2(
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


@pytest.mark.parametrize("columns", [80, 40])
def test_output_fits_the_terminal_and_json_ignores_it(
    columns: int, file: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(file.parent)
    finished_cell(Store(str(file.parent / "runs")), plan, plan.cells[0])  # for a schedule
    commands = [["plan", str(file), "-e", "small"], ["ls", "tasks"], ["ls", "policies"]]
    assert main([*commands[0], "--json"]) == 0
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in commands:
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        too_long = [line for line in lines if len(line) > columns and len(line.split()) > 1]
        assert not too_long
    assert main([*commands[0], "--json"]) == 0
    assert capsys.readouterr().out == whole


def test_help_loads_no_heavy_library() -> None:
    code = "from orchestrator.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    heavy = {"torch", "ray", "mlflow", "trl", "pyarrow", "pydantic", "numpy"}
    assert not loaded_libraries(code) & heavy


ROOT = Path(__file__).parents[1]
VIEW = {"experiment", "about", "storage", "cells", "cells_to_run", "probes", "updates_to_run"}
VIEW |= {
    "rollouts_to_run",
    "refresh_rollouts_to_run",
    "rollouts_to_run_at_most",
    "eta_seconds",
    "gpu_hours",
    "detectable_points",
    "collapse_seen",
    "datasets",
}
VIEW |= {"probe_seconds", "cost", "room", "sources", "packing", "memory", "dropped"}
VIEW |= {"problem", "not_downloaded", "fetch_command", "notes", "changed"}
CELL = {"cell_id", "model", "dataset", "policy", "seed", "size", "updates", "prompts_per_update"}
CELL |= {"rollouts", "rollouts_at_most", "done", "trained", "probe_seed", "name", "axes"}
CELL |= {"resumes_after", "same_as"}
PROBE = {"probe_key", "model", "dataset", "split", "prompts", "samples", "missing_samples"}
PROBE |= {"missing_at_most", "shared_samples", "label", "weak_signal"}


def test_plan_json_has_the_documented_keys(file: Path, capsys) -> None:
    assert main(["plan", str(file), "-e", "small", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert set(view) == VIEW
    assert {frozenset(cell) for cell in view["cells"]} == {frozenset(CELL)}
    assert {frozenset(probe) for probe in view["probes"]} == {frozenset(PROBE)}
    assert view["eta_seconds"] is None, "no cell of this model has finished"


def test_the_catalogues_quickstart_plans_without_running(tmp_path: Path, capsys) -> None:
    storage = tmp_path / "elsewhere"
    arguments = ["plan", str(ROOT / "experiments.yaml"), "-e", "quickstart", "--storage"]
    assert main([*arguments, str(storage)]) == 0
    assert "4 cells, 4 to run" in capsys.readouterr().out
    assert not storage.exists()


def test_a_finished_cell_is_not_run_again_and_gives_an_eta(file: Path, capsys) -> None:
    plan = small_plan(file.parent)
    finished_cell(Store(str(file.parent / "runs")), plan, plan.cells[0])
    assert main(["plan", str(file), "-e", "small", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert [cell["done"] for cell in view["cells"]] == [True, False]
    assert (view["cells_to_run"], view["updates_to_run"]) == (1, 4)
    assert view["eta_seconds"] > 0
    assert view["gpu_hours"] == 0


def test_plan_says_which_settings_have_changed(tmp_path: Path, capsys) -> None:
    plan, store = finished_sweep(tmp_path, policies=["hard", "random", "easy"])
    write_manifest(plan, store)

    def planned(policies: list[str], **settings: object) -> str:
        small_plan(tmp_path, policies=policies, **settings)
        assert main(["plan", str(tmp_path / "experiments.yaml"), "-e", "small"]) == 0
        return capsys.readouterr().out

    both = ["hard", "random"]
    assert "settings have changed" not in planned(both)
    assert "settings have changed" not in planned(["middle"]), "no such cell is stored"
    text = planned([*both, "easy"], budget=9, name="small")
    assert re.search("3 cells, 3 to run\n  3 to run again, .*: budget 8 → 9 \\(stored", text)
    probe = {"samples": 4, "max_completion_length": 32, "temperature": 0.5}
    text = planned(both, probe=probe, lora={"r": 5}, match_sizes=True)
    settings = re.search(r"  2 to run again, .*?: (.*) \(stored", text)
    assert settings and settings[1].startswith("probe.temperature 1.0 → 0.5, lora.r 32 → 5, ")
    (tmp_path / "model" / "config.json").write_text('{"new": 1}')
    assert "changed: models.stub.identity (stored" in planned(both), "a hash says nothing"


def test_a_cell_stopped_in_training_is_at_its_last_checkpoint(tmp_path: Path, capsys) -> None:
    plan = small_plan(tmp_path, policies=["hard", "random", "easy", "middle"])
    store, place = Store(str(tmp_path / "runs")), ["plan", str(tmp_path / "experiments.yaml")]
    finished_cell(store, plan, plan.cells[3])
    for cell, updates in zip(plan.cells[:2], ([1, 3], []), strict=False):
        store.write_json(cell.model_dump(mode="json"), "cells", cell.cell_id, "cell.json")
        for update in updates:
            cell_record(plan, cell).save(store, cell.cell_id, update)
    assert main([*place, "-e", "small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    states = {c.policy: next(li for li in lines if c.cell_id in li)[20:] for c in plan.cells}
    assert states["hard"].startswith("at update 3 of 4  ")
    assert states["random"].startswith("to run  ") and states["easy"].startswith("to run  ")
    assert states["middle"].startswith("finished  ")
    assert main([*place, "-e", "small", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["updates_to_run"], view["rollouts_to_run"]) == (1 + 4 + 4, (1 + 4 + 4) * 8)
    store.set_aside("cells", plan.cells[0].cell_id, "checkpoint-3", "groups.parquet")
    assert main([*place, "-e", "small"]) == 0
    assert "at update 1 of 4  " in capsys.readouterr().out  # the checkpoint before it
    first_eta = view["eta_seconds"]
    (tmp_path / "runs" / "cells" / plan.cells[0].cell_id / "cell.json").unlink()
    assert main([*place, "-e", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["eta_seconds"] > first_eta


def test_plan_prints_the_price_and_what_a_cap_would_leave_out(tmp_path: Path, capsys) -> None:
    settings = {"resources": {"gpus": 1}, "seeds": [0, 1]}
    plan = small_plan(tmp_path, **settings)
    finished_cell(Store(str(tmp_path / "runs")), plan, plan.cells[0])
    arguments = ["plan", str(tmp_path / "experiments.yaml"), "-e", "small", "--gpus", "2"]
    assert main([*arguments, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    small_plan(tmp_path, **settings, max_gpu_hours=round(0.8 * whole["gpu_hours"], 5))
    assert main([*arguments, "--gpu-price", "2"]) == 0
    text = capsys.readouterr().out
    assert "(2 GPUs, 2 cells at a time" in text
    assert "measured on 1 finished cell in this storage" in text
    assert "capped: max_gpu_hours 0.0" in text
    assert "leaves out seed 1 of stub/small: 2 of 4 cells" in text
    assert main([*arguments, "--json", "--gpu-price", "2"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["cost"] == pytest.approx(2 * view["gpu_hours"])
    assert view["dropped"]["cells"] == [cell.cell_id for cell in plan.cells if cell.seed == 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("plan --gpus 0", "1 to 100,000"),
        (f"plan --cpus {'9' * 500}", "99…: "),
        ("plan --gpu abacus", "a100, h100"),
        *[(f"plan --gpu-price {n}", "0 to 1,000,000") for n in ("-1", "nan", "inf", "1e300")],
        ("select --seed one", "0 to 4,294,967,295"),
    ],
)
def test_invalid_numbers_and_names_are_refused(file: Path, capsys, arguments, words) -> None:
    assert main([*arguments.split(), str(file), "-e", "small"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train"],
        ["plan"],
        ["plan", "x.yaml"],
        ["ls", "planets"],
        ["select", "--policy", "hard"],
        ["select", "--seed", "one"],
        ["plan", "x.yaml", "-e", "q", "--tracking-uri", "sqlite://"],
    ],
)
def test_invalid_arguments_end_with_code_2(arguments: list[str], capsys) -> None:
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("decile: ") and not problems(line)


@pytest.mark.parametrize("command", ["plan", "run", "probe", "report"])
def test_every_command_names_the_line_of_an_error(command: str, file: Path, capsys) -> None:
    file.write_text(file.read_text().replace("budget:", "budgte:"))
    assert main([command, str(file), "-e", "small"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"decile: {file}:")
    assert "did you mean 'budget'" in captured.err
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err
    assert captured.out == ""


def test_a_bug_gives_one_line_that_names_its_traceback(file: Path, monkeypatch, capsys) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("orchestrator.cli.plan_summary.plan_summary", broken)
    assert main(["plan", str(file), "-e", "small"]) == 1
    message = capsys.readouterr().err
    assert "unexpected error: ValueError: a bug" in message and message.count("\n") == 1
    log = Path(message.rpartition("traceback: ")[2].strip().rstrip(")"))
    assert "in broken" in log.read_text()
    log.unlink()


def test_ls_reads_the_file_only_for_models_and_experiments(tmp_path: Path, capsys) -> None:
    nowhere = str(tmp_path / "none.yaml")
    assert main(["ls", "policies", nowhere]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed[:4] == ["hard", "easy", "middle", "random"]
    assert main(["ls", "tasks", nowhere]) == 0
    assert all(len(line.split()) > 1 for line in capsys.readouterr().out.splitlines())
    for what in ("models", "experiments"):
        assert main(["ls", what, nowhere]) == 2
        assert "cannot be read" in capsys.readouterr().err


def test_ls_describes_the_models_and_experiments_of_the_catalogue(capsys) -> None:
    file = str(ROOT / "experiments.yaml")
    assert main(["ls", "experiments", file]) == 0
    assert "Four policies on a laptop" in capsys.readouterr().out
    assert main(["ls", "models", file]) == 0
    assert "embedded tiny" in capsys.readouterr().out


@pytest.mark.slow
def test_running_the_module_is_the_same_as_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestrator"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, cwd=ROOT)
    assert (version.returncode, version.stdout.split()[0]) == (0, "decile")
    wrong = subprocess.run(
        [*command, "plan", str(tmp_path / "none.yaml"), "-e", "q"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("decile: ") and "Traceback" not in wrong.stderr


def test_a_command_ends_without_finalizing_the_interpreter() -> None:
    code = (
        "import atexit, os, sys\n"
        "from orchestrator.cli.main import process\n"
        "class AtFinalization:\n"
        "    def __del__(self, write=os.write): write(1, b'finalized')\n"
        "alive = AtFinalization()\n"
        "def at_exit():\n"
        "    atexit.register(print, 'exit functions run', end='')\n"
        "    return 3\n"
        "sys.modules['orchestrator.cli.main'].main = at_exit\n"
        "process()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (3, "exit functions run")


def test_planning_loads_no_heavy_library() -> None:
    code = (
        "from orchestrator.cli.main import main\n"
        "assert main(['plan', 'experiments.yaml', '-e', 'quickstart', '--json']) == 0"
    )
    heavy = {"torch", "ray", "mlflow", "trl", "transformers", "peft", "matplotlib"}
    assert not loaded_libraries(code) & heavy


def test_an_interrupted_command_says_how_to_resume(file: Path, monkeypatch, capsys) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.cli.plan_summary.plan_summary", interrupted)
    assert main(["plan", str(file), "-e", "small"]) == 130
    error = capsys.readouterr().err
    assert error.startswith("decile: interrupted; ") and error.count("\n") == 1
