"""Where files are: paths of experiments.yaml, pages of several files in one folder, the storage."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from remedies import place, refused
from sweeps import NAME, experiments

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import make_plan
from orchestrator.report.content import Page
from orchestrator.report.html_pages import write_page
from orchestrator.report.render import own_page


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `sub` with an experiments file and its questions; the current folder is above."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    file = experiments(tmp_path / "sub")
    content = yaml.safe_load(file.read_text())
    options = {"train": "train.jsonl", "test": "test.jsonl"}
    content["datasets"]["few"] = {"task": "file", "options": options}
    file.write_text(yaml.safe_dump(content))
    (file.parent / "train.jsonl").write_text(questions(0, 64))
    (file.parent / "test.jsonl").write_text(questions(64, 16))
    return file.relative_to(tmp_path)


def edited(file: Path, **blocks: object) -> Path:
    """The file with these blocks of its experiment replaced."""
    content = yaml.safe_load(file.read_text())
    content["experiments"][NAME] |= blocks
    file.write_text(yaml.safe_dump(content))
    return file


def planned(capsys: pytest.CaptureFixture[str], file: Path, *arguments: str) -> dict[str, Any]:
    """What `decile plan --json` prints."""
    assert main(["plan", str(file), "-e", NAME, "--json", *arguments]) == 0
    view: dict[str, Any] = json.loads(capsys.readouterr().out)
    return view


def questions(first: int, count: int) -> str:
    """Lines of a file of sums."""
    numbers = range(first, first + count)
    rows = [json.dumps({"question": f"What is {n} + 1?", "answer": n + 1}) for n in numbers]
    return "\n".join(rows)


def test_paths_are_relative_to_the_file(project: Path) -> None:
    source = load_config(project)
    assert source.config.storage == "sub/runs"
    assert len(make_plan(source, NAME).pools["few"].train) == 64
    assert source.warnings(NAME) == []
    ids = [cell.cell_id for cell in make_plan(source, NAME).cells]
    absolute = load_config(project.resolve())
    assert [cell.cell_id for cell in make_plan(absolute, NAME).cells] == ids


def test_a_path_that_exists_in_the_current_folder_only_is_read_there_with_a_note(
    project: Path,
) -> None:
    project.with_name("train.jsonl").rename("train.jsonl")
    project.with_name("runs").rename("runs")
    source = load_config(project)
    assert source.config.storage == "./runs"
    assert len(make_plan(source, NAME).pools["few"].train) == 64
    storage, train = source.warnings(NAME)
    assert storage.startswith(f"note: {place(project, 'storage:')}storage: ")
    assert "datasets.few.options.train" in train and "'train.jsonl'" in train
    project.with_name("runs").mkdir()
    assert load_config(project).config.storage == "sub/runs", "the file's own folder comes first"


def test_options_shared_by_an_alias_are_resolved_once(project: Path) -> None:
    content = yaml.safe_load(project.read_text())
    content["datasets"]["two"] = content["datasets"]["few"]  # dumped as an alias
    project.write_text(yaml.safe_dump(content))
    assert "*id" in project.read_text()
    options = [load_config(project).config.datasets[name].options for name in ("few", "two")]
    assert options == [{"train": "sub/train.jsonl", "test": "sub/test.jsonl"}] * 2


@pytest.mark.parametrize("path", ["~/runs", "s3://bucket/runs", "/data/runs"])
def test_other_paths_stay_as_they_are(project: Path, path: str) -> None:
    project.write_text(project.read_text().replace("storage: ./runs", f"storage: {path}"))
    assert load_config(project).config.storage == path


def test_a_page_of_another_file_is_not_replaced(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(project.read_text().replace("train.jsonl", "sub/train.jsonl"))
    other.write_text(other.read_text().replace(": test.jsonl", ": sub/test.jsonl"))
    one, two = (make_plan(load_config(file), NAME) for file in (project, other))
    page = Path("report-x.html")
    assert own_page(one, page) == page
    write_page(Page("x", "", "", (), file=one.source.file), page)
    assert own_page(one, page) == page, "its own page is replaced"
    assert own_page(two, page) == Path("report-x-other.html")
    write_page(Page("x", "", "", (), file=tmp_path / "third.yaml"), Path("report-x-other.html"))
    with refused("report-x.html", "--out"):
        own_page(two, page)


def test_plan_says_what_a_run_would_lack(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(project, resources={"gpus": 1}, evaluate={"every": 13})
    arguments = ("--storage", "/proc/none")
    every, storage, gpus = planned(capsys, project, *arguments)["notes"]
    assert "every is 13" in every and "12 updates" in every
    assert "/proc/none" in storage and "GPUs" in gpus
    assert len(planned(capsys, project, *arguments, "--gpus", "1")["notes"]) == 2


@pytest.mark.parametrize(("every", "notes"), [(12, 1), (8, 1), (6, 0)])
def test_plan_says_when_an_online_policy_may_not_be_compared(
    project: Path, capsys: pytest.CaptureFixture[str], every: int, notes: int
) -> None:
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard", "dynamic", "predicted"]}
    view = planned(capsys, edited(project, grid=grid, evaluate={"every": every}))
    assert len(view["notes"]) == notes
    assert all("dynamic" in note and "predicted" not in note for note in view["notes"])


def test_plan_says_which_divided_rollouts_are_not_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]}
    edited(project, grid=grid | {"allocation": ["uniform", "sqrt", "pods"]})
    assert planned(capsys, edited(project, evaluate={"every": 3}))["notes"] == []  # of 12 updates
    view = planned(capsys, edited(project, evaluate={"every": 6}))
    [note] = view["notes"]
    assert "allocation=pods" in note and "update 6 of 12" in note
    assert [cell["axes"]["allocation"] for cell in view["cells"]] == ["uniform", "sqrt", "pods"]
    uniform, _, pods = view["cells"]
    assert pods["rollouts_at_most"] == 4 * uniform["rollouts_at_most"]


@pytest.mark.parametrize(("cpus", "warned"), [(4096, True), (1, False)])
def test_plan_says_where_no_trial_fits_this_machine(
    project: Path, capsys: pytest.CaptureFixture[str], cpus: int, warned: bool
) -> None:
    view = planned(capsys, edited(project, resources={"cpus": cpus}))
    assert any("4096 CPUs" in note for note in view["notes"]) == warned
    assert bool(view["problem"]) == warned
    fits = planned(capsys, project, "--cpus", "4096")
    assert not any("4096" in note for note in fits["notes"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "own.yaml", "-e", "mine", "--policy", "hard", "--layout", "trl"],
        ["select", "own.yaml", "-e", "mine", "--policy", "hard"],
        ["mark", "--task", "file", "--input", "mine.jsonl"],
        ["select", "--probe", "mine.jsonl", "--policy", "hard", "--budget", "2"],
        ["export", "--subset", "s", "--task", "file", "--option", "path=mine.jsonl"]
        + ["--layout", "trl"],
    ],
)
def test_no_command_writes_over_what_it_reads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text(questions(0, 60))
    init = ["init", "--train", "mine.jsonl", "--model", "tiny", "--out", "own.yaml"]
    assert main(init) == 0
    Path("link.jsonl").symlink_to("mine.jsonl")
    for out in ("mine.jsonl", "link.jsonl"):
        assert main([*arguments, "--out", out]) == 2
        assert f"output {out} " in capsys.readouterr().err
    assert Path("mine.jsonl").read_text() == questions(0, 60)


@pytest.mark.parametrize("command", ["report", "probe"])
def test_a_page_is_an_html_file(
    project: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, str(project), "-e", NAME, "--out", str(project)]) == 2
    error = capsys.readouterr().err
    assert str(project) in error and ".html or .htm" in error


def test_init_writes_into_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text(questions(0, 60))
    assert main(["init", "--train", "mine.jsonl", "--model", "tiny", "--out", "new/e.yaml"]) == 0
    assert load_config("new/e.yaml").config.datasets["mine"].options["path"] == "new/../mine.jsonl"
    assert main(["plan", "new/e.yaml", "-e", "mine"]) == 0
