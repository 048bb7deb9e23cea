"""`import decile`: the same stores and numbers as the commands."""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from api_cases import pool
from factories import finished_sweep
from remedies import problems, refused
from sweeps import NAME, experiments

import decile as api
from orchestrator.cli.main import main
from orchestrator.planning.plan import Plan
from orchestrator.probing.probe_folder import write_part
from orchestrator.report.render import verdict_text
from orchestrator.selection.subsets import reason
from orchestrator.storage.lease import driver_lease
from orchestrator.storage.schema import SAMPLES


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def filled(experiment: Any, spec: Any = None, *, solved: Any = lambda i: i % 5) -> None:
    """Store samples of every training probe, of which `solved(i)` of prompt i are correct.

    Where it is None, two are drawn, both correct.
    """
    for each in [spec] if spec else [s for s in experiment.plan.probes if s.split == "train"]:
        loaded, rows = experiment.plan.pool(each), []
        for i, prompt in enumerate(loaded.train):
            correct = solved(i)
            for sample in range(2 if correct is None else each.settings.samples):
                right = correct is None or sample < correct
                answer = loaded.task.format_answer(prompt.answer) if right else "(Z)"
                own = {"prompt_id": prompt.prompt_id, "sample": sample, "completion": answer}
                rows.append(own | {"tokens": 3, "finish": "stop"})
        part = pa.Table.from_pylist(rows, schema=SAMPLES)
        write_part(experiment.store, each.key, each.split, part)


def test_a_subset_is_that_of_a_cell_and_of_the_command(tmp_path: Path) -> None:
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard", "random"], "seed": [3, 4]}
    file = experiments(tmp_path, storage=str(tmp_path / "runs"), grid=grid)
    experiment = api.load(str(file), NAME)
    filled(experiment)
    probe = experiment.probe(sample=False)
    cell = next(cell for cell in experiment.cells if cell.policy == "hard")
    subset = probe.select("hard")
    assert len(subset) == cell.size and subset.reason["seed"] == cell.seed == 3
    assert {n: subset.reason[n] for n in ("probe_key", "pool", "marker", "size")} == {
        n: cell.subset_identity[n] for n in ("probe_key", "pool", "marker", "size")
    }
    for more, file_name in (
        ([], f"runs/subsets/{cell.subset_key}.parquet"),
        (["--out", "s.parquet"],) * 2,
    ):
        assert main(["select", str(file), "-e", NAME, "--policy", "hard", *more]) == 0
        table = pq.read_table(more[1] if more else file_name)
        assert table.equals(subset.table) and reason(table) == subset.reason
    assert probe.select("easy", 5, seed=7).table["pass_rate"].to_pylist() == [1.0] * 5
    for seed in (-1, "x", 1.5):
        with pytest.raises(api.UserError, match="from 0 to 4,294,967,295"):
            probe.select("random", seed=seed)
    assert [p.prompt_id for p in subset.prompts] == subset.table["prompt_id"].to_pylist()
    assert len(probe.prompts) == probe.table.num_rows == 64
    assert probe.samples.num_rows == 64 * 4
    assert "64 prompts × 4 samples" in probe.summary()
    assert "<img" in probe._repr_html_() and probe.plot()._repr_png_()[0][:4] == b"\x89PNG"
    assert "prompts by hard" in subset._repr_html_()
    selector = api.trl.PromptSelector("hard", probe=probe, budget=0.25, seed=3)
    assert sorted(selector.subset["prompt_id"].to_pylist()) == sorted(
        subset.table["prompt_id"].to_pylist()
    )
    assert selector.dataset["prompt_id"] == selector.subset["prompt_id"].to_pylist()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("hard", 65), "64"),
        (("hard", "x"), "budget x"),
        (("hrad",), "'hrad'"),
        (("hard", 0), "budget 0: write"),
        (("band", 5), "low"),
        ((None,), "policy None"),
        (("dynamic", 0.2), "'dynamic'"),
    ],
)
def test_what_cannot_be_selected_is_refused(
    tmp_path: Path, arguments: Sequence[Any], named: str
) -> None:
    experiment = api.load(experiments(tmp_path, storage=str(tmp_path / "runs")), NAME)
    filled(experiment)
    with refused(named, by=api.UserError):
        experiment.probe(sample=False).select(*arguments)


def test_a_probe_that_is_not_finished_names_the_command(tmp_path: Path, capsys: Any) -> None:
    file = experiments(tmp_path, storage=str(tmp_path / "runs"))
    experiment = api.load(file, NAME)
    with pytest.raises(api.UserError, match=f"0 of 256 .*: decile probe {file} -e {NAME}$"):
        experiment.probe(sample=False)
    assert main(["select", str(file), "-e", NAME, "--policy", "hard", "--storage", "other"]) == 2
    assert re.search(rf": decile probe .* --storage {tmp_path}/other", capsys.readouterr().err)


def test_one_of_several_probes_has_to_be_chosen(tmp_path: Path) -> None:
    grid = {"model": ["tiny"], "dataset": ["few", "shuffled_objects"], "policy": ["hard"]}
    experiment = api.load(experiments(tmp_path, storage=str(tmp_path / "runs"), grid=grid), NAME)
    with pytest.raises(
        api.UserError, match=r"2 training probes \(tiny on few; tiny on shuffled_obj"
    ):
        experiment.probe()
    with pytest.raises(api.UserError, match="'fwe': choose one of tiny on few"):
        experiment.probe(dataset="fwe")
    filled(experiment, next(s for s in experiment.plan.probes if s.dataset.name == "few"))
    assert len(experiment.probe(dataset="few", sample=False).prompts) == 64


def test_a_probe_that_stopped_early_knows_the_subsets_of_the_grid_only(tmp_path: Path) -> None:
    changes = {
        "grid": {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]},
        "probe": {"samples": 4, "max_completion_length": 48, "adaptive": True},
    }
    experiment = api.load(experiments(tmp_path, storage=str(tmp_path / "runs"), **changes), NAME)
    filled(experiment, solved=lambda i: 0 if i < 16 else None)
    probe = experiment.probe(sample=False)
    assert sorted(probe.select("hard").table["prompt_id"].to_pylist()) == sorted(
        prompt.prompt_id for prompt in probe.prompts[:16]
    )
    with pytest.raises(api.UserError, match="adaptive: false.* policy easy.* seed 0"):
        probe.select("easy")


@pytest.mark.parametrize(("layout", "name"), [("openrlhf", "o.jsonl"), ("verl", "v.parquet")])
def test_an_export_from_the_file_has_a_card(tmp_path: Path, layout: str, name: str) -> None:
    file = experiments(tmp_path, storage=str(tmp_path / "runs"))
    experiment = api.load(file, NAME)
    filled(experiment)
    arguments = ["-e", NAME, "--policy", "hard", "--layout", layout, "--out", name, "--card"]
    assert main(["export", str(file), *arguments]) == 0
    written, card = Path(name).read_bytes(), Path(f"{name}.card.md").read_text()
    own = Path("own") / name
    why = experiment.probe(sample=False).select("hard").export(layout, own, card=True)
    assert own.read_bytes() == written and why["sha256"] in card
    assert Path(f"{own}.card.md").read_text() == card
    [line] = re.findall(r"^\| expected \| (.*) \|$", card, re.M)
    table = experiment.probe(sample=False).table
    chosen = pc.is_in(
        table["prompt_id"],
        experiment.probe(sample=False).select("hard").table["prompt_id"].combine_chunks(),
    )
    of_subset, of_pool = (pc.mean(t["posterior"]).as_py() for t in (table.filter(chosen), table))
    assert line == f"{100 * of_subset:.1f} % | {100 * of_pool:.1f} %"
    assert of_subset > 3 / 64  # the share of the samples that selected them
    assert "K = 4 completions" in card and "hard; 16 prompts, seed 0" in card
    [command] = re.findall(r"^decile (export .*)$", card, re.M)
    assert main(command.replace(f"--out {name} --card", "--out again-" + name).split()) == 0
    assert Path(f"again-{name}").read_bytes() == written


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("select mine.yaml -e small", "--policy"),
        ("select -e small --policy hard", "FILE"),
        ("select mine.yaml -e small --policy hard --probe p", "--probe"),
        ("select --probe p --out s --policy hard --budget 1 --model tiny", "--model"),
        ("export --subset s --task file --layout trl --out o.jsonl --seed 0", "--seed"),
    ],
)
def test_the_two_forms_of_a_command_are_not_mixed(arguments: str, named: str, capsys: Any) -> None:
    assert main(arguments.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert named in line and not problems(line)


def test_a_file_of_questions_has_the_probe_of_the_file_that_init_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from decile import experiments as module

    pool()
    assert main(["init", "--train", "pool.jsonl", "--model", "tiny", "--yes"]) == 0
    written = api.load("experiments.yaml", "pool")
    calls: list[tuple[Plan, bool]] = []
    monkeypatch.setattr(
        module, "probe_experiment", lambda run, wait: calls.append((run.plan, wait))
    )
    [spec] = (s for s in written.plan.probes if s.split == "train")
    filled(written, spec)
    probe = api.probe("pool.jsonl", "tiny", storage="runs")
    assert (probe.spec.key, probe.spec.marker) == (spec.key, spec.marker)
    assert probe.select("hard").reason == written.probe(sample=False).select("hard").reason
    (plan, waits), *_ = calls
    assert [each.split for each in plan.probes] == ["train"]  # no test question is sampled
    assert not waits
    with pytest.raises(api.UserError, match="unknown setting 'temprature'.*did you mean"):
        api.probe("pool.jsonl", "tiny", temprature=1.0)
    with pytest.raises(api.UserError, match=r"none.jsonl does not exist"):
        api.probe("none.jsonl", "tiny")
    with pytest.raises(api.UserError, match="'tinny'"):
        api.probe(Path("pool.jsonl"), "tinny")


def test_results_are_those_of_the_report(tmp_path: Path) -> None:
    finished_sweep(tmp_path)
    results = api.load(tmp_path / "experiments.yaml", "small").results()
    assert results.table.num_rows == 2 and {"policy", "gain", "rollouts"} <= {
        *results.table.column_names
    }
    comparisons = results.compare()
    assert str(comparisons) == verdict_text(results.analysis)
    [row] = (r for r in comparisons.table.to_pylist() if r["measure"] == "accuracy")
    [family] = results.analysis.families
    assert (row["effect"], row["p_holm"]) == (family.accuracy[0].effect, family.accuracy[0].p_holm)
    assert "<img" in results._repr_html_() and "2 of 2 cells" in repr(results)
    with pytest.raises(api.UserError, match="no figure 'nothing': write one of test_accuracy"):
        results.plot("nothing")


def test_the_only_experiment_of_a_file_needs_no_name(tmp_path: Path, capsys: Any) -> None:
    file = experiments(tmp_path, storage=str(tmp_path / "runs")).rename("my own.yaml")
    assert main(["plan", str(file)]) == 0 and capsys.readouterr().out.startswith(NAME)
    assert main(["report", str(file)]) == 1, "nothing is stored yet"
    page = html.unescape(Path(f"report-{NAME}.html").read_text())
    assert f"decile run '{file}' -e {NAME}" in page
    filled(api.load(file))
    assert main(["report", str(file)]) == 0
    assert main(["select", str(file), "--policy", "hard", "--budget", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("1 prompt: ")]
    content = yaml.safe_load(file.read_text())
    content["experiments"]["other"] = content["experiments"][NAME]
    file.write_text(yaml.safe_dump(content))
    with refused("-e", f"other, {NAME}", by=api.UserError):
        api.load(file)


def test_nothing_is_shown_of_an_experiment_without_results(tmp_path: Path) -> None:
    experiment = api.load(experiments(tmp_path, storage=str(tmp_path / "runs")))
    assert experiment.results().compare().table.num_rows == 0
    with pytest.raises(api.UserError):
        experiment.results().plot()
    with (
        driver_lease(experiment.store, NAME, print),
        pytest.raises(api.UserError, match="wait=True"),
    ):
        experiment.probe()
