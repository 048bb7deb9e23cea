"""Wrong gold answers in the training pool: which, how many, and what depends on them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import finished_sweep, sample_row, small_plan, store_samples
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.difficulty.probe_table import CellTables
from orchestrator.pipeline.probe_texts import samples_text
from orchestrator.pipeline.run import Run
from orchestrator.planning.pools import Dataset, Pool, load_pool, with_label_noise
from orchestrator.probing.outcomes import MissingSamples
from orchestrator.report.rows import read_rows
from orchestrator.report.sections.pool import probe_report
from orchestrator.report.sections.tables import results
from orchestrator.selection.stored import store_subset
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from tasks import Prompt, TaskError
from tasks.prompt_table import PromptTable
from tasks.prompts import make_prompt

LETTERS = load_pool(Dataset("few", "shuffled_objects", {"train": 80, "test": 20}, "lenient"))
NUMBERS = load_pool(Dataset("sums", "arithmetic", {"train": 80, "test": 20}, "lenient"))
GRID = {"model": ["stub"], "dataset": ["small"], "policy": ["hard", "random"], "seed": [0]}


def golds(pool: Pool) -> dict[str, str]:
    return {prompt.question: prompt.answer for prompt in pool.train}


def replaced(pool: Pool, clean: Pool) -> dict[str, str]:
    """Question -> wrong gold."""
    own = golds(clean)
    return {q: answer for q, answer in golds(pool).items() if answer != own[q]}


NAMED = replace(  # ids of a user's own
    LETTERS,
    train=PromptTable.of([replace(p, prompt_id=f"own {i}") for i, p in enumerate(LETTERS.train)]),
)


@pytest.mark.parametrize("clean", [LETTERS, NUMBERS, NAMED])
@given(share=st.floats(0.01, 0.5), seed=st.integers(0, 2**32 - 1))
def test_a_share_of_the_golds_is_wrong_and_nothing_else_changes(
    clean: Pool, share: float, seed: int
) -> None:
    noisy = with_label_noise(clean, share, seed)
    wrong = replaced(noisy, clean)
    assert len(wrong) == len(noisy.mislabeled) == round(share * 80)
    assert golds(noisy).keys() == golds(clean).keys()
    assert noisy.test == clean.test and noisy.test_hash == clean.test_hash
    by_question = {prompt.question: prompt for prompt in noisy.train}
    assert {by_question[q].prompt_id for q in wrong} == noisy.mislabeled
    untouched = {p.prompt_id for p in clean.train} & {p.prompt_id for p in noisy.train}
    assert len(untouched) == 80 - len(wrong), "their samples are kept"
    for prompt in clean.train:
        answer = noisy.task.format_answer(by_question[prompt.question].answer)
        outcome = noisy.task.mark(answer, prompt.answer).outcome
        assert outcome == ("wrong" if prompt.question in wrong else "correct")


def test_the_wrong_golds_depend_on_the_seed_and_a_larger_share_adds_to_them() -> None:
    less, more = (replaced(with_label_noise(LETTERS, s, 3), LETTERS) for s in (0.1, 0.3))
    assert less.items() <= more.items()
    assert replaced(with_label_noise(LETTERS, 0.1, 3), LETTERS) == less
    assert replaced(with_label_noise(LETTERS, 0.1, 4), LETTERS).keys() != less.keys()
    again = load_pool(replace(LETTERS.dataset, label_noise=0.1, label_noise_seed=3))
    assert replaced(again, LETTERS) == less, "any process builds the same pool"
    every = replaced(with_label_noise(LETTERS, 0.5, 3), LETTERS)
    assert len({*every.values()}) > 4, "no letter is preferred"
    assert all(wrong in question for question, wrong in every.items()), "they are among the options"


@pytest.mark.parametrize("answer", [None, 7, "3"])
def test_a_task_that_perturbs_wrongly_is_named(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [make_prompt("sums", f"Q{i}", str(i + 3), "") for i in range(40)]
    pool = replace(NUMBERS, train=PromptTable.of(prompts))
    monkeypatch.setattr(type(NUMBERS.task), "perturb", lambda *_: answer)
    with pytest.raises(TaskError, match=r"perturb\(\) returned .* for the gold"):
        with_label_noise(pool, 1.0, 0)


def test_label_noise_is_an_axis(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, grid=GRID | {"label_noise": [0, 0.1, 0.25]})
    clean = small_plan(tmp_path / "clean")
    assert [c.cell_id for c in plan.cells[:2]] == [c.cell_id for c in clean.cells]
    assert len({cell.cell_id for cell in plan.cells}) == 6
    assert len({cell.train_hash for cell in plan.cells}) == 3
    assert len({cell.probe.key for cell in plan.cells}) == 1, "equal samples are drawn once"
    assert len({cell.baseline.key for cell in plan.cells}) == 1
    trained = [spec for spec in plan.probes if spec.split == "train"]
    assert [len(plan.pool(spec).mislabeled) for spec in trained] == [0, 4, 10]
    assert [*plan.pools] == ["small"]
    text = Path(plan.source.file).read_text()
    plan.source.file.write_text(text.replace("0.25", "0.75"))
    with pytest.raises(UserError, match=r"label_noise\.2: label_noise is 0\.75: write .* 0\.5"):
        load_config(plan.source.file)


def test_errors_of_the_verifier_are_axes_that_change_training_alone(tmp_path: Path) -> None:
    rates = {"false_positive_rate": [0, 0.2], "false_negative_rate": [0, 0.1]}
    plan = small_plan(tmp_path, grid=GRID | rates)
    clean = small_plan(tmp_path / "clean")
    assert [c.cell_id for c in plan.cells[:2]] == [c.cell_id for c in clean.cells]
    assert len({cell.cell_id for cell in plan.cells}) == 8
    one_each = [{getattr(c, name) for c in plan.cells} for name in ("train_hash", "subset_key")]
    assert [len(each) for each in one_each] == [1, 2], "each policy selects what it selected"
    assert len({cell.baseline.key for cell in plan.cells}) == 1
    assert "false_positive_rate" not in plan.cells[0].model_dump()
    assert plan.cells[-1].settings_shown["false_positive_rate"] == 0.2
    for name in rates:
        with refused("format has no score", code="noise-without-score"):
            small_plan(tmp_path / name, reward="format", **{name: 0.1})
    with refused("write a number from 0 to 1"):
        small_plan(tmp_path / "high", false_positive_rate=1.5)


def test_prompts_that_pools_share_are_sampled_once(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, grid=GRID | {"label_noise": [0.1, 0, 0.25]})
    run = Run.of(plan, Store(str(tmp_path / "runs")))
    trained = [spec for spec in plan.probes if spec.split == "train"]
    missing = [[*run.pending_after_earlier_probes(spec).work] for spec in trained]
    assert [len(requests) for requests in missing] == [40, 4, 6], "0.25 has 4 of 0.1, and 30 of 0"
    assert len({prompt.prompt_id for requests in missing for prompt, _ in requests}) == 50
    counts = [(p.samples, p.shared) for p in map(run.pending_after_earlier_probes, trained)]
    assert counts == [(160, 0), (16, 144), (24, 136)]
    text = samples_text(9, 2, at_most=False, shared=3)
    assert re.findall(r"\d+", text) == ["3", "9", "4", "2"], "shared, all, stored, to draw"
    assert all(indices == (0, 1, 2, 3) for requests in missing for _, indices in requests)


@given(st.data())
def test_missing_samples_without_those_of_another_pool(data: st.DataObject) -> None:
    def pool(first: int, count: int, k: int) -> MissingSamples:
        present = data.draw(
            st.lists(
                st.lists(st.booleans(), min_size=k, max_size=k), min_size=count, max_size=count
            )
        )
        prompts = [Prompt(f"{i:016x}", "Q", "A", "") for i in range(first, first + count)]
        return MissingSamples(
            PromptTable.of(prompts), np.array(present, dtype=bool).reshape(count, k)
        )

    def pairs(missing: MissingSamples) -> set[tuple[str, int]]:
        return {(prompt.prompt_id, index) for prompt, indices in missing for index in indices}

    one, other = pool(0, 5, 3), pool(3, 4, data.draw(st.integers(1, 4)))
    assert pairs(one.without(other)) == pairs(one) - pairs(other)
    assert one.without(other).samples == len(pairs(one) - pairs(other))


def test_a_pool_with_one_gold_cannot_have_wrong_ones(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text("".join(f'{{"q": "Q{i}", "a": "yes"}}\n' for i in range(60)))
    options = {"path": str(file), "question": "q", "answer": "a", "marker": "text"}
    datasets = {"mine": {"task": "file", "options": options | {"test_share": 0.2}}}
    with refused("label_noise: ", "dataset mine", code="no-label-noise"):
        small_plan(tmp_path, grid=GRID | {"dataset": ["mine"]}, datasets=datasets, label_noise=0.1)


def test_the_report_counts_the_wrong_golds_of_each_subset(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, grid=GRID | {"label_noise": [0, 0.5]}, budget=32)
    rows = read_rows(store, plan.cells, {t: p.mislabeled for t, p in plan.noisy_pools.items()})
    noisy = plan.pool(plan.cells[-1].probe)
    first = sum(prompt.prompt_id in noisy.mislabeled for prompt in noisy.train[:32])
    assert first >= 12
    assert [row.mislabeled for row in rows] == [None, None, first, first]
    table = results(rows)
    assert table.head[-1] == "wrong golds"
    assert [row[-1] for row in table.body] == ["–", "–", str(first), str(first)]
    assert "wrong golds" not in results(read_rows(store, plan.cells)).head


def test_suspected_golds_are_left_out_of_a_subset_and_of_a_selection_from_a_file(
    tmp_path: Path,
) -> None:
    """The model gives the right answer two or three times of four, whatever the gold answer is."""
    trusted = {"trusted": {"policy": "hard", "options": {"exclude": "suspected"}}}
    plan = small_plan(tmp_path, policies=["hard", "trusted"], rules=trusted, label_noise=0.25)
    store, spec = Store(str(tmp_path / "runs")), plan.cells[0].probe
    right, pool = golds(load_pool(replace(spec.dataset, label_noise=0))), plan.pool(spec)
    rows = [
        sample_row(
            p.prompt_id,
            i,
            outcome="correct" if answer == p.answer else "wrong",
            extracted=answer,
        )
        for p in pool.train
        for mostly in [p.prompt_id in pool.mislabeled or int(p.prompt_id, 16) // 5 % 2]
        for i, answer in enumerate([*[right[p.question]] * (2 + bool(mostly)), "(Y)", "(Z)"][:4])
    ]
    store_samples(store, spec, rows)
    folder = Run.of(plan, store).folder(spec)
    tables = CellTables(folder.outcomes(), folder)
    subsets = [store_subset(store, cell, tables.of(cell)) for cell in plan.cells]
    wrong = [len(pool.mislabeled & {*s["prompt_id"].to_pylist()}) for s in subsets]
    assert wrong == [8, 0], "the eight hardest prompts are mislabeled"
    out = tmp_path / "out.parquet"
    arguments = ["select", "--probe", str(tmp_path / "runs" / "probes" / spec.key)]
    arguments += ["--policy", "hard", "--option", "exclude=suspected", "--budget", "8"]
    assert main([*arguments, "--out", str(out)]) == 0
    chosen = pq.read_table(out)["prompt_id"].to_pylist()
    assert chosen == subsets[1].sort_by("rank")["prompt_id"].to_pylist()
    [hard, without] = probe_report(plan, store, tmp_path / "p.html").pools[0].policies
    assert hard.summary and hard.summary.suspected == 8
    assert without.summary and without.summary.suspected == 0


def suspects(file: Path, ids: list[str], suspected: list[bool | None] | None) -> str:
    columns = {"prompt_id": pa.array(ids, pa.string())}
    columns |= {"suspected": pa.array(suspected, pa.bool_())} if suspected is not None else {}
    pq.write_table(pa.table(columns), file)
    return str(file)


def test_listed_prompts_are_left_out_of_the_pool_with_its_label_noise(tmp_path: Path) -> None:
    noisy = with_label_noise(LETTERS, 0.25, 0)
    wrong, right = sorted(noisy.mislabeled)[:5], next(iter(LETTERS.train)).prompt_id
    file = suspects(tmp_path / "s.parquet", [*wrong, right], [True] * 5 + [False])
    dataset = replace(LETTERS.dataset, label_noise=0.25, without=file)
    pool = load_pool(dataset)
    assert {p.prompt_id for p in noisy.train} - {p.prompt_id for p in pool.train} == {*wrong}
    assert pool.notes[-1].startswith("5 of 80 ") and file in pool.notes[-1]
    assert pool.test_hash == LETTERS.test_hash
    clean = load_pool(replace(dataset, label_noise=0.0))
    assert len(clean.train) == 80, "the listed prompts are those with wrong golds"
    again = with_label_noise(clean, 0.25, 0)
    assert again.train_hash == pool.train_hash, "as a plan makes its pools"
    every = suspects(tmp_path / "all.parquet", [p.prompt_id for p in LETTERS.train][:70], None)
    assert len(load_pool(replace(LETTERS.dataset, without=every)).train) == 10


@pytest.mark.parametrize(
    ("ids", "suspected", "column"),
    [
        (None, None, "prompt_id"),
        (["p"], [None], "suspected"),
        ([p.prompt_id for p in LETTERS.train], None, "every"),
    ],
)
def test_a_table_of_prompts_that_cannot_be_used_is_refused(
    tmp_path: Path, ids: list[str] | None, suspected: list[bool | None] | None, column: str
) -> None:
    file = tmp_path / "s.parquet"
    if ids is not None:
        suspects(file, ids, suspected)
    few = {"task": "shuffled_objects", "options": {"train": 80, "test": 20}, "without": str(file)}
    with refused("datasets.few", f"without: {file}: ", column, code="invalid-dataset"):
        small_plan(tmp_path, grid=GRID | {"dataset": ["few"]}, datasets={"few": few})


def test_plan_says_how_many_golds_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = small_plan(tmp_path, label_noise=0.1, label_noise_seed=2)
    assert main(["plan", str(plan.source.file), "-e", "small"]) == 0
    assert "small with label_noise 0.1 seed 2: 4 of 40 " in capsys.readouterr().out
