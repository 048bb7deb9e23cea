"""What a policy ranks by: golds, agreement, another model's probe, a file."""

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from factories import finished_cell, sample_row, small_plan, store_samples
from remedies import problems, refused
from scipy.stats import spearmanr

from decile.probes import Probe
from orchestrator.cli.main import main
from orchestrator.config.claims import side_text
from orchestrator.config.experiment import value_text
from orchestrator.difficulty.sources import by_agreement
from orchestrator.difficulty.table import difficulty
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.probing.probe import pending_samples, targets_of
from orchestrator.report.analysis import analyse, cell_table
from orchestrator.report.churn import churn_table
from orchestrator.report.html_pages import page_html
from orchestrator.report.render import terminal_report
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.pool import probe_report
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.selection.subsets import reason
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from orchestrator.tracking.views import cell_params, sweep_params, sweep_view
from policies import PolicyError

OTHER = {"model": "other"}
GRID: dict[str, Any] = {"model": ["stub"], "dataset": ["small"], "policy": ["hard", "random"]}
AXIS = GRID | {"difficulty": ["gold", "agreement", OTHER]}


def answers(model: str, place: int) -> list[str]:
    """Four answers to each of 40 prompts, whose places by gold, agreement and model differ."""
    right = (place if model == "stub" else place // 5) % 5
    wrong = ["(W)"] * 4 if place % 2 else ["(W)", "(X)", "(Y)", "(Z)"]
    return ["right"] * right + wrong[right:]


def store_probe(plan: Plan, store: Store, model: str) -> None:
    """Store the samples of a model's training probe."""
    [spec] = [spec for spec in plan.training_probes if spec.model.name == model]
    prompts = plan.pool(spec).train
    rows = [
        sample_row(
            prompts[int(row)].prompt_id,
            sample,
            extracted=prompts[int(row)].answer if text == "right" else text,
            outcome="correct" if text == "right" else "wrong",
        )
        for place, row in enumerate(prompts.order)
        for sample, text in enumerate(answers(model, place))
    ]
    store_samples(store, spec, rows)


def probed(folder: Path, **settings: Any) -> tuple[Plan, Store]:
    """A plan whose probes are stored, of both models where both are probed."""
    plan, store = small_plan(folder, **{"grid": AXIS} | settings), Store(str(folder / "runs"))
    for model in dict.fromkeys(spec.model.name for spec in plan.training_probes):
        store_probe(plan, store, model)
    return plan, store


def by_source(plan: Plan, policy: str = "hard") -> dict[str, Cell]:
    return {cell.ranked_by: cell for cell in plan.cells if cell.policy == policy}


# the report


def finished(folder: Path, **settings: Any) -> tuple[Plan, Store]:
    plan, store = probed(folder, **settings)
    for number, cell in enumerate(plan.cells):
        finished_cell(store, plan, cell, seed=number)
    return plan, store


def test_mlflow_has_the_sources(tmp_path: Path) -> None:
    plan, store = finished(tmp_path)
    view = sweep_view(analyse(plan, store))
    tags = {name: text for name, text in view.tags.items() if name.startswith("decile.difficulty/")}
    assert len(tags) == 6 and "tables/sources_of_difficulty_small.csv" in view.files
    assert "[" in tags["decile.difficulty/small/pass rate of stub and pass rate of other"]
    hard = by_source(plan)
    assert cell_params(hard["agreement of stub"])["ranked_by"] == "agreement of stub"
    assert "ranked_by" not in cell_params(hard["pass rate of stub"])
    plain = small_plan(tmp_path)
    assert "difficulty" not in sweep_params(plain.experiment), "as of earlier versions"
    by_other = small_plan(tmp_path, difficulty=OTHER)
    assert sweep_params(by_other.experiment)["difficulty.model"] == "other"


def test_tables_of_cells_have_the_axis_as_text(tmp_path: Path) -> None:
    """Some of its values are names, others mappings."""
    plan, store = finished(tmp_path)
    rows = analyse(plan, store).rows
    shown = {value_text(value) for value in AXIS["difficulty"]}
    for table in (cell_table(rows), churn_table(rows)):
        assert {*table["difficulty"].to_pylist()} == shown
        assert {*table["seed"].to_pylist()} == {row.cell.seed for row in rows}


def places(plan: Plan, subset: pa.Table) -> set[int]:
    """The places of a subset's prompts in the order of a difficulty table."""
    [pool] = {id(p): p for p in map(plan.pool, plan.training_probes)}.values()
    ids = pool.train.ids(pool.train.order).to_pylist()
    return {ids.index(i) for i in subset["prompt_id"].to_pylist()}


def selected(plan: Plan, store: Store, cell: Cell) -> pa.Table:
    return PlanProbe(plan, store, cell.probe).select(cell)


# the file


@pytest.mark.parametrize(
    ("settings", "place", "code", "value"),
    [
        ({"difficulty": {"model": "nobody"}}, "difficulty.model", "unknown-model", "nobody"),
        ({"difficulty": "golden"}, "difficulty", "invalid-difficulty", "golden"),
        (
            {"difficulty": {"model": "other", "by": "luck"}},
            "difficulty.by",
            "invalid-difficulty",
            "luck",
        ),
        (
            {"difficulty": {"model": "other", "file": "x"}},
            "difficulty",
            "invalid-difficulty",
            "file",
        ),
        ({"difficulty": {"by": "gold"}}, "difficulty", "invalid-difficulty", "agreement"),
        ({"difficulty": 3}, "difficulty", "invalid-difficulty", "3"),
        (
            {"grid": GRID | {"difficulty": ["gold", {"model": "nobody"}]}},
            "grid.difficulty.1.model",
            "unknown-model",
            "nobody",
        ),
        (
            {"grid": AXIS | {"policy": ["base_wrong"]}},
            "grid.policy.0",
            "no-first-sample",
            "base_wrong",
        ),
        (
            {"grid": AXIS | {"policy": ["random", "full"]}},
            "grid.difficulty.1",
            "same-cells",
            "gold",
        ),
        (
            {"grid": GRID | {"difficulty": ["gold", {"model": "stub"}]}},
            "grid.difficulty.1",
            "same-cells",
            "stub",
        ),
        (
            {"rules": {"mine": {"policy": "hard", "difficulty": "agreement"}}, "match_sizes": True}
            | {"grid": GRID | {"policy": ["hard", "mine"]}},
            "match_sizes",
            "matched-difficulties",
            "hard and mine",
        ),
        (
            {"difficulty": OTHER}
            | {
                "probe": {"engine": "server", "engine_args": {"base_url": "http://a", "model": "m"}}
            },
            "probe.engine_args.model",
            "one-served-model",
            "hard",
        ),
        (
            {"difficulty": {"file": "absent.csv"}},
            "difficulty.file",
            "invalid-difficulty-file",
            "absent",
        ),
    ],
)
def test_a_difficulty_that_cannot_be_is_refused_at_its_line(
    tmp_path: Path, settings: dict[str, Any], place: str, code: str, value: str
) -> None:
    with refused(f": experiments.small.{place}: ", value, code=code) as caught:
        small_plan(tmp_path, **settings)
    [line] = [int(str(caught.value).split("experiments.yaml:")[1].split(":")[0])]
    text = (tmp_path / "experiments.yaml").read_text().splitlines()[line - 1]
    assert any(part in text for part in (*place.split("."), value, "- ")), text


@pytest.mark.parametrize(
    ("rules", "place", "code"),
    [
        (
            {"a": {"policy": "hard", "difficulty": {"model": "no"}}},
            "a.difficulty.model",
            "unknown-model",
        ),
        (
            {"a": {"policy": "random", "difficulty": "agreement"}},
            "a.difficulty",
            "unused-difficulty",
        ),
        ({"a": {"policy": "predicted", "difficulty": OTHER}}, "a.difficulty", "unused-difficulty"),
        (
            {
                "a": {"policy": "hard", "difficulty": OTHER},
                "b": {"policy": "mixture", "options": {"shares": {"a": 0.5, "random": 0.5}}},
            },
            "b.options.shares",
            "difficulty-of-a-part",
        ),
    ],
)
def test_a_difficulty_of_a_policy_that_cannot_be_is_refused(
    tmp_path: Path, rules: dict[str, Any], place: str, code: str
) -> None:
    with refused(f": policies.{place}: ", code=code):
        small_plan(tmp_path, policies=["a", "hard"], rules=rules)


# the plan


def test_another_source_is_another_subset_of_the_same_treatment(tmp_path: Path) -> None:
    plain, plan = small_plan(tmp_path), small_plan(tmp_path, grid=AXIS)
    hard, others = by_source(plan), [cell for cell in plan.cells if cell.policy == "random"]
    assert [*hard] == ["pass rate of stub", "agreement of stub", "pass rate of other"]
    assert len(others) == 1 and len(plan.shared[others[0].cell_id]) == 2, "it ranks by none"
    ids = {cell.policy: cell.cell_id for cell in plain.cells}
    assert [hard["pass rate of stub"].cell_id, others[0].cell_id] == [ids["hard"], ids["random"]]
    assert len({cell.subset_key for cell in hard.values()}) == 3
    assert len({json.dumps(cell.treatment) for cell in hard.values()}) == 1
    assert [cell.reads_golds for cell in hard.values()] == [True, False, True]
    assert not others[0].reads_golds
    stored = Cell.model_validate_json(hard["pass rate of other"].model_dump_json())
    assert stored.cell_id == hard["pass rate of other"].cell_id
    assert "difficulty" not in plain.cells[0].model_dump()


def test_the_other_model_is_probed_once_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = small_plan(tmp_path, grid=AXIS | {"policy": ["hard", "easy"], "seed": [0, 1]})
    names = [(spec.model.name, spec.split) for spec in plan.probes]
    assert sorted(names) == [("other", "train"), ("stub", "test"), ("stub", "train")]
    both = small_plan(tmp_path, grid=AXIS | {"model": ["stub", "other"]})
    assert len(both.training_probes) == 2, "it is a probe of the grid, too"
    assert plan.training_probes[1].key == both.training_probes[1].key
    small_plan(tmp_path, grid=AXIS)
    assert main(["plan", str(tmp_path / "experiments.yaml"), "-e", "small"]) == 0
    text = capsys.readouterr().out
    assert "probe other/small train: 160 samples to draw" in text
    assert 'hard/s0/difficulty={"model": "other"}: 8 prompts' in text


def test_a_policy_may_have_a_source_of_its_own(tmp_path: Path) -> None:
    rules = {
        "by-other": {"policy": "hard", "difficulty": OTHER},
        "by-golds": {"policy": "hard", "difficulty": "gold"},
        "trusted": {
            "policy": "hard",
            "options": {"exclude": "suspected"},
            "difficulty": "agreement",
        },
    }
    plan = small_plan(tmp_path, policies=[*rules, "random"], rules=rules, difficulty="agreement")
    axis = by_source(small_plan(tmp_path, grid=AXIS))
    cells = {cell.policy: cell for cell in plan.cells}
    assert cells["by-other"].cell_id == axis["pass rate of other"].cell_id
    assert cells["by-golds"].cell_id == axis["pass rate of stub"].cell_id
    assert cells["trusted"].reads_golds, "it leaves out what its golds dispute"


# the tables


def test_a_table_by_agreement_is_that_of_the_most_frequent_answers_as_golds(tmp_path: Path) -> None:
    plan, store = probed(tmp_path)
    probe = PlanProbe(plan, store, plan.cells[0].probe)
    own = probe.tables.with_group(probe.spec, 4)
    table = probe.tables.with_ranking(probe.spec, 4, "agreement")
    samples = probe.folder.samples(SAMPLES.names)
    frequent: dict[str, list[str]] = {}
    for row in samples.to_pylist():
        frequent.setdefault(row["prompt_id"], []).append(row["extracted"])
    golds = {i: Counter(texts).most_common(1)[0][0] for i, texts in frequent.items()}
    marked = [
        row | {"outcome": "correct" if row["extracted"] == golds[row["prompt_id"]] else "wrong"}
        for row in samples.to_pylist()
    ]
    again = difficulty(
        pa.Table.from_pylist(marked, schema=SAMPLES).drop_columns(["score"]),
        group_size=4,
        samples_per_prompt=4,
    )
    for name in again.column_names:
        if name not in ("first", "tier", "suspected", "dispute"):
            assert table[name].to_pylist() == pytest.approx(again[name].to_pylist()), name
    assert table["first"].null_count == 40
    assert not table["pass_rate"].equals(own["pass_rate"])
    seen = probe.tables.of(by_source(plan)["agreement of stub"])
    assert seen["suspected"].null_count == 40, "golds are disputed only where a policy asks"


def test_agreement_counts_texts_among_all_samples_and_is_unknown_without_any() -> None:
    rows = [
        *(("a", text) for text in ("1", "1", "2", None)),
        *(("b", text) for text in (None, None)),
    ]
    outcomes = ["wrong", "wrong", "correct", "unparsed", "unparsed", "truncated"]
    samples = pa.table(
        {
            "prompt_id": [i for i, _ in rows],
            "outcome": outcomes,
            "extracted": pa.array([text for _, text in rows], pa.string()),
        }
    )
    table = difficulty(samples, {"a": "", "b": "", "c": ""})
    assert table["agreement"].to_pylist() == [0.5, 0.0, None]
    ranked = by_agreement(table)
    assert ranked["pass_rate"].to_pylist() == [0.5, 0.0, None]
    names = ("successes", "wrong", "unparsed", "truncated", "scorable")
    assert [ranked[name].to_pylist()[0] for name in names] == [2, 1, 1, 0, 4]
    assert [ranked[name].to_pylist()[1] for name in names] == [0, 0, 1, 1, 2]
    assert ranked["score_sd"].to_pylist()[0] == pytest.approx(np.std([1, 1, 0, 0], ddof=1))


RANKING = {
    "hard": {},
    "easy": {},
    "middle": {},
    "learnable": {},
    "some": {"policy": "band", "options": {"low": 0.25, "high": 0.75}},
    "parts": {"policy": "mixture", "options": {"shares": {"hard": 0.5, "easy": 0.5}}},
    "strata": {"policy": "hard", "options": {"within": {"pass_rate": "equal"}}},
}


def test_every_policy_of_pass_rates_ranks_by_every_source(tmp_path: Path) -> None:
    rules = {name: rule for name, rule in RANKING.items() if rule}
    plan, store = probed(tmp_path, grid=AXIS | {"policy": [*RANKING]}, rules=rules)
    for policy in RANKING:
        chosen = {n: selected(plan, store, cell) for n, cell in by_source(plan, policy).items()}
        sets = [frozenset(places(plan, subset)) for subset in chosen.values()]
        assert len({*sets}) == 3 and {len(each) for each in sets} == {8}, policy
        of_other = GRID | {"model": ["other"], "policy": [policy]}
        others = small_plan(tmp_path, grid=of_other, rules=rules)
        own = selected(others, store, others.cells[0])
        assert places(plan, own) == sets[2], "as the other model's own subset"


def test_the_subset_has_its_own_pass_rates_and_says_what_it_was_ranked_by(tmp_path: Path) -> None:
    plan, store = probed(tmp_path)
    hard = by_source(plan)
    own = PlanProbe(plan, store, plan.cells[0].probe).tables.of(hard["pass rate of stub"])
    rate = dict(zip(own["prompt_id"].to_pylist(), own["pass_rate"].to_pylist(), strict=True))
    texts = {"agreement of stub": "agreement", "pass rate of other": "pass rate of other"}
    for source, title in texts.items():
        subset = selected(plan, store, hard[source])
        assert subset["pass_rate"].to_pylist() == [rate[i] for i in subset["prompt_id"].to_pylist()]
        assert subset["n"].to_pylist() == [4] * 8
        why = reason(subset)
        assert why["ranked_by"] == title and why["difficulty"] == hard[source].difficulty.identity
        assert {f"; {title} " in text for text in subset["why"].to_pylist()} == {True}
    by_other = selected(plan, store, hard["pass rate of other"])
    assert places(plan, by_other) <= {p for p in range(40) if p // 5 % 5 == 0}
    assert set(by_other["pass_rate"].to_pylist()) > {0.0}, "other prompts are hard for the model"
    assert "ranked_by" not in reason(selected(plan, store, hard["pass rate of stub"]))


# files


def scores(folder: Path, plan: Plan, name: str, column: str = "pass_rate", **more: Any) -> str:
    """A file in which 20 of the 40 prompts have a score: their place, over 40."""
    [spec] = [s for s in plan.training_probes if s.model.name == "stub"]
    pool = plan.pool(spec).train
    ids = pool.ids(pool.order).to_pylist()[::2]
    table = pa.table({"prompt_id": ids, column: [place / 40 for place in range(0, 40, 2)], **more})
    file = folder / name
    if name.endswith(".csv"):
        pyarrow.csv.write_csv(table, file)
    elif name.endswith(".jsonl"):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    else:
        pq.write_table(table, file)
    return str(file)


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl", "s.parquet"])
@pytest.mark.parametrize("column", ["pass_rate", "score"])
def test_a_file_of_scores_ranks_and_its_content_is_part_of_the_identity(
    tmp_path: Path, name: str, column: str
) -> None:
    plan, store = probed(tmp_path, grid=GRID)
    scores(tmp_path, plan, name, column)
    by_file = {"difficulty": {"file": name}}  # beside the experiments file
    plan = small_plan(tmp_path, grid=GRID, **by_file)
    cell = by_source(plan)[name]
    subset = selected(plan, store, cell)
    assert places(plan, subset) == {0, 2, 4, 6, 8, 10, 12, 14}
    assert str(tmp_path / name) in plan.files
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / name).write_bytes((tmp_path / name).read_bytes())
    moved = small_plan(tmp_path, grid=GRID, difficulty={"file": f"again/{name}"})
    assert by_source(moved)[name].cell_id == cell.cell_id
    scores(tmp_path, plan, name, column, tier=["x"] * 20)
    with refused(name, "has changed"):
        selected(plan, store, cell)
    assert by_source(small_plan(tmp_path, grid=GRID, **by_file))[name].cell_id != cell.cell_id


def test_prompts_that_a_file_lacks_come_last_and_are_in_no_band(tmp_path: Path) -> None:
    plan, store = probed(tmp_path, grid=GRID)
    file = scores(tmp_path, plan, "s.csv")
    rules = {"band": {"policy": "band", "options": {"low": 0.0, "high": 1.0}}}
    settings = {"difficulty": {"file": file}, "budget": 24, "rules": rules}
    plan = small_plan(tmp_path, policies=["hard", "band"], **settings)
    subset = selected(plan, store, by_source(plan)["s.csv"])
    assert places(plan, subset.slice(0, 20)) == {*range(0, 40, 2)}
    assert {text.rpartition(" ")[2] for text in subset["why"].to_pylist()[20:]} == {"unknown"}
    with pytest.raises(PolicyError, match="band has 20 of 24 prompts"):
        selected(plan, store, by_source(plan, "band")["s.csv"])


def test_rates_of_a_table_with_fewer_samples_are_as_the_table_says(tmp_path: Path) -> None:
    """Of the model's own probe, the missing samples of a prompt count as failures."""
    plan, store = probed(tmp_path, grid=GRID)
    counts = {"n": [2] * 20, "successes": [2] * 20, "error": [0] * 20, "truncated": [0] * 20}
    file = scores(tmp_path, plan, "s.parquet", "score", pass_rate=[1.0] * 20, **counts)
    rules = {"solved": {"policy": "band", "options": {"low": 1.0, "high": 1.0}}}
    settings = {"difficulty": {"file": file}, "rules": rules}
    plan = small_plan(tmp_path, policies=["solved"], **settings)
    subset = selected(plan, store, by_source(plan, "solved")["s.parquet"])
    assert places(plan, subset) <= {*range(0, 40, 2)} and subset.num_rows == 8


def test_matched_sizes_are_those_of_the_source(tmp_path: Path) -> None:
    rules = {"solved": {"policy": "band", "options": {"low": 1.0, "high": 1.0}}}
    axis = {"policy": ["solved", "random"], "difficulty": ["gold", OTHER]}
    settings = {"rules": rules, "match_sizes": True, "budget": 12}
    plan, store = probed(tmp_path, grid=GRID | axis, **settings)
    sizes = {(c.policy, c.ranked_by): selected(plan, store, c).num_rows for c in plan.cells}
    assert sizes == {
        ("solved", "pass rate of stub"): 8,
        ("random", "pass rate of stub"): 8,
        ("solved", "pass rate of other"): 5,
        ("random", "pass rate of other"): 5,
    }


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("prompt_id,pass_rate\n0000000000000000,0.5\n", "no prompt of the pool"),
        ("prompt_id,rate\nID,0.5\n", "pass_rate"),
        ("prompt_id,pass_rate\nID,high\n", "column pass_rate"),
        ("prompt_id,pass_rate\nID,1.5\n", "1.5"),
        ("prompt_id,pass_rate\nID,0.5\nID,0.6\n", "several rows"),
        ("prompt_id,pass_rate\n,0.5\n", "prompt_id"),
        ("pass_rate\n0.5\n", "prompt_id"),
        ("", "prompt_id"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_at_its_line(
    tmp_path: Path, content: str, value: str
) -> None:
    first = plan_id(small_plan(tmp_path))
    (tmp_path / "s.csv").write_text(content.replace("ID", first))
    rules = {"mine": {"policy": "hard", "difficulty": {"file": "s.csv"}}}
    for place, settings in {
        "policies.mine.difficulty.file": {"policies": ["mine"], "rules": rules},
        "experiments.small.grid.difficulty.1.file": {
            "grid": GRID | {"difficulty": ["gold", {"file": "s.csv"}]}
        },
    }.items():
        with refused(f": {place}: ", "s.csv", value, code="invalid-difficulty-file"):
            small_plan(tmp_path, **settings)


def plan_id(plan: Plan) -> str:
    return next(iter(plan.pool(plan.cells[0].probe).train)).prompt_id


# adaptive probes


def test_an_adaptive_probe_stops_early_where_no_subset_that_ranks_by_it_can_change(
    tmp_path: Path,
) -> None:
    adaptive = {"probe": {"samples": 4, "max_completion_length": 32, "adaptive": True}}
    store = Store(str(tmp_path / "runs"))
    plan = small_plan(tmp_path, difficulty=OTHER, **adaptive)
    own, other = plan.training_probes
    assert [len(targets_of(plan, spec) or []) for spec in (own, other)] == [0, 1]
    waiting = [
        pending_samples(plan, s, Run.of(plan, store).folder(s)).samples for s in (own, other)
    ]
    assert waiting == [0, 160], "nothing ranks by the model's own pass rates"
    by_own = small_plan(tmp_path, difficulty="agreement", **adaptive)
    [own] = by_own.training_probes
    assert targets_of(by_own, own) is None, "any sample may change what is most frequent"
    rules = {"mine": {"policy": "hard", "options": {"exclude": "suspected"}}}
    trusted = small_plan(tmp_path, policies=["mine"], rules=rules, difficulty=OTHER, **adaptive)
    assert targets_of(trusted, trusted.training_probes[0]) is None, "golds are suspected by its own"
    store_probe(plan, store, "other")
    plan = small_plan(tmp_path, difficulty=OTHER, **adaptive)
    subset = selected(plan, store, by_source(plan)["pass rate of other"])
    assert subset["pass_rate"].null_count == 8, "its own are not known"
    assert places(plan, subset) <= {p for p in range(40) if p // 5 % 5 == 0}


# commands and the Python API


def command(plan: Plan, *arguments: str) -> list[str]:
    return [*arguments[:1], str(plan.source.file), "-e", "small", *arguments[1:]]


@pytest.mark.parametrize(
    ("word", "source"),
    [
        ("gold", "pass rate of stub"),
        ("agreement", "agreement of stub"),
        ("model:other", "pass rate of other"),
        ("FILE", "s.csv"),
    ],
)
def test_a_subset_by_a_source_is_that_of_its_cell_in_commands_and_python(
    tmp_path: Path, word: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, store = probed(tmp_path)
    file = scores(tmp_path, plan, "s.csv")
    word = file if word == "FILE" else word
    plan = small_plan(tmp_path, grid=AXIS | {"difficulty": [*AXIS["difficulty"], {"file": file}]})
    cell = by_source(plan)[source]
    expected = selected(plan, store, cell)["prompt_id"].to_pylist()
    subset = Probe(PlanProbe(plan, store, cell.probe)).select("hard", difficulty=word)
    assert subset.table["prompt_id"].to_pylist() == expected
    out = tmp_path / "subset.parquet"
    arguments = command(plan, "select", "--policy", "hard", "--difficulty", word)
    assert main([*arguments, "--out", str(out)]) == 0
    assert pq.read_table(out)["prompt_id"].to_pylist() == expected
    assert main(arguments) == 0 and store.exists("subsets", f"{cell.subset_key}.parquet")
    table = tmp_path / "train.jsonl"
    export = ["export", "--policy", "hard", "--difficulty", word, "--layout", "jsonl", "--card"]
    assert main([*command(plan, *export), "--out", str(table)]) == 0
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    assert [row["prompt_id"] for row in rows] == expected
    card = Path(f"{table}.card.md").read_text()
    title = source.replace("agreement of stub", "agreement")
    assert (f"ranked by: {title}" in card) == (word != "gold")
    capsys.readouterr()
    command_of_card = card.split("```")[1].strip().splitlines()[0]
    assert (word != "gold") == (f"--difficulty {word}" in command_of_card)


@pytest.mark.parametrize(
    "order", [[], ["--order", "easy"], ["--order", "random"], ["--spread", "tier"]], ids=str
)
def test_the_command_of_a_card_writes_the_same_file(
    tmp_path: Path, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = probed(tmp_path, grid=GRID | {"seed": [3, 0]})
    (tmp_path / "again").mkdir()
    export = ["export", "--policy", "hard", "--layout", "jsonl", "--card", *order]
    assert main([*command(plan, *export), "--out", str(tmp_path / "train.jsonl")]) == 0
    written = (tmp_path / "train.jsonl").read_text()
    card = (tmp_path / "train.jsonl.card.md").read_text()
    monkeypatch.chdir(tmp_path / "again")
    assert main(shlex.split(card.split("```")[1])[1:]) == 0
    assert Path("train.jsonl").read_text() == written
    assert " ".join(order) in card


def test_a_probe_ranks_by_that_of_another_model_and_plan(tmp_path: Path) -> None:
    plan, store = probed(tmp_path, grid=GRID | {"model": ["other"]})
    stored = PlanProbe(plan, store, plan.cells[0].probe)
    expected = stored.select(plan.cells[0])["prompt_id"].to_pylist()
    own = small_plan(tmp_path, grid=GRID | {"seed": [0]}, name="small")
    store_probe(own, store, "stub")
    probe = Probe(PlanProbe(own, store, own.cells[0].probe))
    subset = probe.select("hard", difficulty=Probe(stored))
    assert subset.table["prompt_id"].to_pylist() == expected
    assert subset.reason["difficulty"]["probe_key"] == stored.spec.key
    assert set(subset.table["pass_rate"].to_pylist()) > {0.0}
    exported = subset.export("jsonl", tmp_path / "t.jsonl", card=True)
    assert exported["subset"]["ranked_by"] == "pass rate of other"
    with refused("random", "leave difficulty out"):
        probe.select("random", difficulty="gold")
    with refused("nobody", "stub"):
        probe.select("hard", difficulty={"model": "nobody"})
    fewer = {"fewer": {"task": "shuffled_objects", "options": {"train": 8, "test": 12, "seed": 9}}}
    others = small_plan(tmp_path, grid=GRID | {"dataset": ["fewer"]}, datasets=fewer)
    store_probe(others, store, "stub")
    with refused("no prompt of"):
        probe.select("hard", difficulty=Probe(PlanProbe(others, store, others.cells[0].probe)))


def test_a_model_that_is_not_probed_is_refused_with_what_to_write(tmp_path: Path) -> None:
    plan, store = probed(tmp_path, grid=GRID)
    probe = Probe(PlanProbe(plan, store, plan.cells[0].probe))
    with refused("other on small", "difficulty: {model: other}", "decile probe"):
        probe.select("hard", difficulty={"model": "other"})


def test_a_file_or_folder_of_a_probe_is_selected_from_by_another_difficulty(tmp_path: Path) -> None:
    plan, store = probed(tmp_path)
    hard, out = by_source(plan), tmp_path / "out.parquet"
    for cell in hard.values():  # a folder is read where the subsets name its pool
        store.write_table(selected(plan, store, cell), "subsets", f"{cell.subset_key}.parquet")
    spec = plan.cells[0].probe
    folder, table = tmp_path / "runs" / "probes" / spec.key, tmp_path / "table.parquet"
    tables = PlanProbe(plan, store, spec).tables
    pq.write_table(tables.with_group(spec, 4), table)
    other = hard["pass rate of other"].difficulty.probe
    theirs = tmp_path / "other.parquet"
    pq.write_table(PlanProbe(plan, store, other).tables.with_group(other, 4), theirs)

    def by(probe: Path, word: str) -> list[str]:
        options = ["--probe", str(probe), "--policy", "hard", "--budget", "8", "--out", str(out)]
        assert main(["select", *options, "--difficulty", word, "--force"]) == 0
        return pq.read_table(out)["prompt_id"].to_pylist()

    expected = {n: selected(plan, store, cell)["prompt_id"].to_pylist() for n, cell in hard.items()}
    assert by(folder, "gold") == by(table, "gold") == expected["pass rate of stub"]
    assert by(folder, "agreement") == expected["agreement of stub"]
    assert by(folder, str(theirs)) == by(table, str(theirs)) == expected["pass rate of other"]
    why = reason(pq.read_table(out))
    assert (why["ranked_by"], why["probe_key"]) == ("other.parquet", None)
    assert set(pq.read_table(out)["pass_rate"].to_pylist()) > {0.0}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["select", "--probe", "t.parquet", "--difficulty", "model:a"], "model:a"),
        (["select", "--probe", "t.parquet", "--difficulty", "agreement"], "agreement"),
        (["select", "--probe", "t.parquet", "--difficulty", "s.csv"], "s.csv"),
        (["select", "--probe", "t.parquet", "--difficulty", "model:"], "model:"),
        (["select", "--probe", "t.parquet", "--difficulty", "none.csv"], "none.csv"),
    ],
)
def test_a_difficulty_of_a_command_that_cannot_be_is_refused(
    tmp_path: Path,
    arguments: list[str],
    value: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"prompt_id": ["a", "b"], "pass_rate": [0.1, 0.2]}), "t.parquet")
    Path("s.csv").write_text("prompt_id,pass_rate\nc,0.5\n")
    assert main([*arguments, "--policy", "hard", "--budget", "1", "--out", "o.parquet"]) == 2
    message = capsys.readouterr().err
    assert value in message and problems(message.removeprefix("decile: ")) == []
    export = ["--subset", "s.parquet", "--task", "gsm8k", "--layout", "trl", "--out", "o.jsonl"]
    assert main(["export", *export, "--difficulty", "gold"]) == 2
    assert "--difficulty" in capsys.readouterr().err


def test_the_report_compares_sources_and_the_cells_of_each(tmp_path: Path) -> None:
    plan, store = finished(tmp_path, grid=AXIS | {"seed": [0, 1]})
    analysis = analyse(plan, store)
    [matrix] = analysis.sources
    kinds = ("pass rate", "agreement")
    assert matrix.sources == tuple(f"{a} of {b}" for b in ("stub", "other") for a in kinds)
    own, other = (
        PlanProbe(plan, store, spec).tables.with_group(spec, 4)["pass_rate"].to_numpy()
        for spec in plan.training_probes
    )
    pair = matrix.pairs[0, 2]
    assert pair.correlation == pytest.approx(spearmanr(own, other).statistic)
    assert (pair.shared, *pair.own) == pytest.approx((0.1, 0.5, 0.4)), "4 of 8, of 10 that tie"
    [arms] = analysis.difficulty
    assert (arms.policy, [*arms.rows]) == ("hard", [*by_source(plan)])
    assert [row.cell.seed for row in arms.rows["agreement of stub"]] == [0, 1]
    comparison = arms.comparisons["pass rate of other"]
    ends = [
        np.mean([row.curve[4] for row in arms.rows[source]])
        for source in ("pass rate of other", "pass rate of stub")
    ]
    effect = comparison.oriented("pass rate of other")[0]
    assert effect == pytest.approx(100 * (ends[0] - ends[1])) and comparison.runs == (2, 2)
    page, text = sweep_page(analysis), terminal_report(analysis)
    names = ("sources_of_difficulty_small", "accuracy_by_source_of_difficulty")
    shown = [page.tables[name] for name in names]
    assert [len(table.body) for table in shown] == [4, 3]
    for table in shown:
        assert table.title in text and table.title in page_html(page)
    of_own, of_other = shown[0].body[0], shown[0].body[2]
    assert (of_own[2], of_other[4]) == ("50 %", "40 %"), "with itself"
    assert of_own[4].startswith("0.00 [") and of_other[2].startswith("10 % ["), "with the other"


def test_policies_with_a_source_of_their_own_are_compared_as_before_and_by_source(
    tmp_path: Path,
) -> None:
    rules = {"by-other": {"policy": "hard", "difficulty": OTHER}}
    plan, store = finished(
        tmp_path, grid=GRID | {"policy": ["hard", "by-other", "random"]}, rules=rules
    )
    analysis = analyse(plan, store)
    [family] = analysis.families
    assert {(c.a, c.b) for c in family.accuracy} == {
        ("hard", "by-other"),
        ("hard", "random"),
        ("by-other", "random"),
    }
    [arms] = analysis.difficulty
    assert [*arms.rows] == ["pass rate of stub", "pass rate of other"]


def test_a_source_is_named_by_what_the_policy_reads_of_it(tmp_path: Path) -> None:
    rules = {
        "strata": {"policy": "longest", "options": {"within": "tier"}},
        "sure": {"policy": "least_agreed", "options": {"exclude": "unsolved"}},
        "mixed": {"policy": "mixture", "options": {"shares": {"least_agreed": 0.5, "random": 0.5}}},
    }
    names = dict.fromkeys(("least_agreed", "agreement_band", *rules), "agreement")
    names |= {"uncertain": "entropy", "longest": "tokens", "strata": "tokens", "hard": "pass rate"}
    rules["agreement_band"] = {"policy": "agreement_band", "options": {"low": 0.0, "high": 1.0}}
    grid = AXIS | {"policy": [*names], "difficulty": ["gold", OTHER]}
    plan, store = finished(tmp_path, grid=grid, rules=rules)
    arms = {each.policy: [*each.rows] for each in analyse(plan, store).difficulty}
    assert arms == {n: [f"{by} of stub", f"{by} of other"] for n, by in names.items()}
    subset = selected(plan, store, by_source(plan, "least_agreed")["agreement of other"])
    assert reason(subset)["ranked_by"] == "agreement of other"
    table = PlanProbe(plan, store, plan.training_probes[1]).tables
    cell = by_source(plan, "hard")["pass rate of other"]
    known = table.with_ranking(cell.difficulty.probe, 4, "agreement")
    rates = dict(zip(*(known[n].to_pylist() for n in ("prompt_id", "agreement")), strict=True))
    for row in subset.to_pylist():
        assert row["why"].endswith(f"; agreement of other {rates[row['prompt_id']]:.3g}")


def test_a_sweep_of_one_model_and_its_golds_has_no_matrix(tmp_path: Path) -> None:
    plan, store = finished(tmp_path, grid=GRID)
    analysis = analyse(plan, store)
    assert (analysis.sources, analysis.difficulty) == ((), ())
    assert "difficulty" not in {section.anchor for section in sweep_page(analysis).sections}
    two = small_plan(tmp_path, grid=GRID | {"model": ["stub", "other"]})
    store_probe(two, store, "other")
    [matrix] = analyse(two, store).sources
    assert matrix.notes == () and len(matrix.sources) == 4


def test_a_source_that_is_not_known_is_noted_and_left_out(tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path, grid=AXIS), Store(str(tmp_path / "runs"))
    store_probe(plan, store, "stub")
    report = probe_report(plan, store)
    [matrix] = report.sources
    assert matrix.sources == ("pass rate of stub", "agreement of stub")
    [note] = matrix.notes
    assert "other" in note and "0 of 160" in note
    [pool] = report.pools
    notes = {p.policy: p.note for p in pool.policies if not p.summary}
    [(name, why)] = notes.items()
    assert name == 'hard, difficulty {"model": "other"}' and "0 of 160" in why


def test_the_page_of_a_probe_shows_what_each_policy_takes_by_its_source(tmp_path: Path) -> None:
    plan, store = probed(tmp_path)
    file = scores(tmp_path, plan, "s.csv")
    plan = small_plan(tmp_path, grid=AXIS | {"difficulty": [*AXIS["difficulty"], {"file": file}]})
    report = probe_report(plan, store, tmp_path / "p.html")
    own, other = report.pools
    summaries = {p.policy: p.summary for p in own.policies}
    names = [
        f"hard, difficulty {value_text(v)}" for v in plan.experiment.grid.setting_axes["difficulty"]
    ]
    assert {*names} < {*summaries}
    gold, agreement, by_other, by_file = (summaries[name] for name in names)
    assert gold.unsolved == 8 and agreement.unsolved == 4 and by_other.unsolved == 2
    assert by_file.overlap is None and by_other.overlap is not None
    assert [p.policy for p in other.policies] == ["hard"], "as if it were of that model"
    assert other.policies[0].summary.unsolved == 8
    [matrix] = report.sources
    assert (matrix.sources[-1], matrix.known[-1]) == ("s.csv", 20)


def test_claims_name_the_values_of_the_axis(tmp_path: Path) -> None:
    claims = [
        "difficulty=agreement > difficulty=gold for hard",
        "difficulty={model: other} = difficulty=gold for hard within 5",
    ]
    plan, store = finished(tmp_path, claims=claims, grid=AXIS | {"seed": [0, 1]})
    assert [dict(claim.a)["difficulty"] for claim in plan.claims] == ["agreement", OTHER]
    assert side_text(plan.claims[1].a) == 'difficulty={"model": "other"}'
    assert len(analyse(plan, store).claims) == 2
