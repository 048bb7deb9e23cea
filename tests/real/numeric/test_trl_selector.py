"""`decile.trl.PromptSelector` in TRL's own trainer, against cells with the same history."""

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from effort import some
from grpo import Killed, one_thread, rated_pool, trained_cell  # noqa: F401 (fixture)  # noqa: F401 (fixture)  # noqa: F401 (fixture)
from paths import ROOT
from remedies import refused
from transformers import IntervalStrategy
from trl import GRPOTrainer
from trl_selector_cases import (  # noqa: F401 (fixtures)
    UPDATES,
    G,
    by_update,
    cell,
    is_correct,
    reward,
    rows_of,
    selector_of,
    sizes,
    small_cell,
    trainer_of,
)

from decile.trl import STATE, PromptSelector
from orchestrator.cli.main import main
from orchestrator.embedded import embedded_path
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.selection.candidates import probed_history
from orchestrator.storage.errors import UserError
from orchestrator.storage.proof import table_bytes
from orchestrator.storage.schema import GROUPS
from policies import BuiltOnlinePolicy, History
from policies.scheduled import Predicted
from tasks.marking.marks import Mark


def rates(values: list[float]) -> pa.Table:
    ids = [f"p{i}" for i in range(len(values))]
    return pa.table({"prompt_id": ids, "pass_rate": pa.array(values, pa.float64())})


ONLINE: dict[str, dict[str, Any]] = {
    "dynamic": {"max_draws": 2},
    "balanced": {"of": "hard", "low": 0.3},
    "curriculum": {"of": {"band": {"low": 0.2, "high": 0.8}}},
    "pools": {"retire": 1},
    "predicted": {},
    "greso": {"max_draws": 2},
    "lilo": {"ratio": 2},
}


@pytest.mark.parametrize(
    "policy", some([*dict.fromkeys(["hard", "greso", "predicted", "random", "full", *ONLINE])], 2)
)
def test_the_prompts_are_those_of_a_cell_with_the_same_history(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def marks(task: Any, answers: Sequence[Any], *_: Any, **__: Any) -> list[Mark]:
        known = [is_correct(answer.question, i % G) for i, answer in enumerate(answers)]
        names = {None: "error", True: "correct", False: "wrong"}
        return [Mark(names[each], None, "") for each in known]

    monkeypatch.setattr("orchestrator.probing.samples.mark_answers", marks)
    options = ONLINE.get(policy, {})
    cell = small_cell(tmp_path, policy, options)
    store = trained_cell(tmp_path, cell, (), monkeypatch)
    place = ("cells", cell.cell_id)
    selector = selector_of(cell, policy, options=options)
    trainer = trainer_of(cell, tmp_path / "out", selector)
    selector.attach(trainer)
    trainer.train()
    expected = store.read_table(GROUPS, *place, "groups.parquet")
    assert expected is not None
    table = selector.table()
    kept = table.filter(pc.equal(table["discarded"], False))
    assert by_update(kept) == by_update(expected)
    assert kept["rewards"] == expected["rewards"] and kept["tier"] == expected["tier"]
    if lost := store.read_table(GROUPS, *place, "discarded.parquet"):
        assert by_update(table.filter(table["discarded"])) == by_update(lost)
    assert (policy in ("dynamic", "balanced", "greso", "lilo")) == (kept.num_rows < table.num_rows)
    assert {*table["update"].to_pylist()} == {*range(1, UPDATES + 1)}
    outcomes = {outcome for row in table["outcomes"].to_pylist() for outcome in row}
    assert {"correct", "wrong"} <= outcomes


@pytest.mark.parametrize("policy", some(["random", "predicted"], 1))
def test_a_killed_run_continues_as_an_undisturbed_one(tmp_path: Path, policy: str) -> None:
    """Also in a later epoch of the 24 prompts of `random`, of which an update takes 4."""
    cell = small_cell(tmp_path, policy, {}, save_steps=4, max_steps=11)
    runs = []
    for kill in (0, 10):
        folder = tmp_path / f"kill{kill}"
        for stop in [kill, 0] if kill else [0]:
            selector = selector_of(cell, policy)
            rewards = stopped_at(stop) if stop else reward
            trainer = trainer_of(cell, folder, selector, rewards)
            selector.attach(trainer)
            if stop:
                with pytest.raises(Killed):
                    trainer.train()
                assert max(selector.table()["update"].to_pylist()) >= 9
            else:
                trainer.train(resume_from_checkpoint=bool(kill) or None)
        weights = [p.detach().clone() for p in trainer.model.parameters() if p.requires_grad]
        runs.append((selector.table(), weights))
    assert runs[0][0] == runs[1][0] and len(runs[0][0]) >= 40
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))
    trainer.reward_funcs = [stopped_at(2)]
    with pytest.raises(Killed):
        trainer.train()  # again, from the start
    assert selector.table()["prompt_id"][:4] == runs[0][0]["prompt_id"][:4]


def stopped_at(update: int) -> Callable[..., Any]:
    def killing(prompts: Any, trainer_state: Any, **columns: Any) -> list[float | None]:
        if trainer_state.global_step + 1 == update:
            raise Killed
        return reward(prompts, **columns)

    killing.__name__ = "reward"
    return killing


def replayed(cell: Cell, selector: PromptSelector, size: int, updates: int) -> list[list[str]]:
    """What `predicted` chooses from the groups that the selector has recorded."""
    rows = selector.groups.rows
    chosen = []
    for update in sorted({row["update"] for row in rows}):
        history, policy = probed_history(selector.subset, **sizes(cell, updates)), Predicted()
        place = {i: at for at, i in enumerate(history.prompt_ids.to_pylist())}
        for row in rows:
            if row["update"] < update:
                marked = G - row["outcomes"].count("error")
                correct = row["outcomes"].count("correct")
                history.add(row["update"], place[row["prompt_id"]], correct, marked)
        ids = BuiltOnlinePolicy("predicted", policy).next_ids(history, update, size)
        chosen.append(ids.to_pylist())
    return chosen


@pytest.mark.parametrize(
    ("settings", "size", "starts"),
    some(
        [
            ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, 16, [1, 3, 5]),
            ({"steps_per_generation": 4}, 16, [1, 5]),
            ({"num_iterations": 2}, 4, [1, 3, 5]),
        ],
        1,
    ),
)
def test_every_generation_has_its_own_choice(
    tmp_path: Path, cell: Cell, settings: dict[str, int], size: int, starts: list[int]
) -> None:
    grpo = {"max_steps": 6, "save_steps": 4, **settings}
    cell = cell.model_copy(update={"grpo": cell.grpo | grpo})
    selector = selector_of(cell, "predicted")
    trainer = trainer_of(cell, tmp_path, selector)
    selector.attach(trainer)
    trainer.train()
    groups = selector.table()
    assert sorted({*groups["update"].to_pylist()}) == starts
    chosen = [groups.filter(pc.equal(groups["update"], u))["prompt_id"].to_pylist() for u in starts]
    assert chosen == replayed(cell, selector, size, 6)
    assert all(len({*ids}) == size for ids in chosen)
    again = selector_of(cell, "predicted")
    resumed = trainer_of(cell, tmp_path, again)
    again.attach(resumed)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert again.table() == groups


def test_some_rewards_decide_what_is_correct_and_none_is_no_mark(
    tmp_path: Path, cell: Cell
) -> None:
    def length(completions: Any, **_: Any) -> list[float]:
        return [100.0] * len(completions)

    def graded(question: Sequence[str], **_: Any) -> list[float | None]:
        return [None if i % G == 3 else 0.3 * (i % G) for i, _ in enumerate(question)]

    selector = selector_of(cell, "predicted", correct_by="graded", correct_from=0.6)
    trainer = trainer_of(cell, tmp_path, selector, [length, graded], reward_weights=[0.01, 2.0])
    trainer.args.eval_strategy, trainer.args.eval_steps = IntervalStrategy.STEPS, 1
    trainer.eval_dataset = rows_of(cell).select(range(4)).remove_columns("prompt_id")
    selector.attach(trainer)
    trainer.train()
    assert len(selector.table()) == 8, "an evaluation is no part of the history"
    assert any("eval_reward" in logged for logged in trainer.state.log_history)
    for row in selector.table().to_pylist():
        assert row["outcomes"] == ["wrong", "wrong", "correct", "error"]
        assert row["rewards"] == pytest.approx([1.0, 1.6, 2.2, 1.0])
        assert row["scores"] == pytest.approx([0, 0.3, 0.6, None])
        assert dict(row["components"])["length"] == [100.0] * G
    history = trainer.chooser.history
    trainer.chooser.choose(9, 1)
    drawn = history.pass_rate[history.groups > 0]
    assert len(drawn) and drawn == pytest.approx([1 / 3] * len(drawn))


@pytest.mark.parametrize(("correct_from", "warned"), [(0.6, False), (0.7, True)])
def test_a_bound_that_no_reward_reaches_is_said(
    tmp_path: Path, cell: Cell, correct_from: float, warned: bool, capsys: Any
) -> None:
    def graded(question: Sequence[str], **_: Any) -> list[float]:
        return [0.3 * (i % 3) for i, _ in enumerate(question)]

    selector = selector_of(cell, "predicted", correct_from=correct_from)
    trainer = trainer_of(cell, tmp_path, selector, graded)
    selector.attach(trainer)
    trainer.train()
    errors = capsys.readouterr().err
    assert errors.count("0.6,") == errors.count("correct_from is 0.7") == warned


def test_discarded_groups_are_paid_once_and_have_no_gradient(tmp_path: Path, cell: Cell) -> None:
    """With the class, the loss and the table of completions of a user's own trainer."""
    calls: list[int] = []

    class Own(GRPOTrainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(-1)
            return super().compute_loss(*args, **kwargs)

    def rare(prompts: Any, question: Any, log_extra: Any, log_metric: Any, **_: Any) -> Any:
        calls.append(len(prompts))
        log_extra("question", [*question])
        log_metric("seen", float(len(prompts)))
        live = question[0] if not seen else next(iter(seen))
        seen.add(live)
        return [float(q == live and i % 2) for i, q in enumerate(question)]

    seen: set[str] = set()
    selector = selector_of(cell, "dynamic", options={"max_draws": 2})
    trainer = trainer_of(cell, tmp_path, selector, rare, Own, log_completions=True, max_steps=1)
    assert isinstance(trainer, Own)
    selector.attach(trainer)
    assert isinstance(trainer, Own) and type(trainer).__name__ == "Own"
    trainer.train()
    assert [n for n in calls if n > 0] == [16, 12, 4] and -1 in calls
    table = selector.table()
    assert table["discarded"].to_pylist() == [False] + [True] * 7
    batch = trainer._buffered_inputs[0]
    assert int((batch["tool_mask"].sum(1) > 0).sum()) == G
    assert float(batch["live_share"]) == 0.25
    assert len(trainer._logs["prompt"]) == 16 and not trainer._logs["extra"]
    assert [*tmp_path.glob("completions/*.parquet")]


def test_rollouts_keep_the_log_probabilities_of_what_drew_them(tmp_path: Path, cell: Cell) -> None:
    """As vLLM returns them: here, each is the last id of its prompt's own text."""

    class Drawing(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
            ids = [[prompt[len(prompt) // 2], *self.eos_token_ids] for prompt in prompt_ids]
            return ids, [[-float(row[0])] * len(row) for row in ids]

    selector = selector_of(cell, "dynamic")
    trainer = trainer_of(cell, tmp_path, selector, kind=Drawing, max_steps=1)
    selector.attach(trainer)
    trainer.train()
    assert selector.groups.discarded
    batch = trainer._buffered_inputs[0]
    drawn = batch["completion_ids"] * batch["completion_mask"]
    assert torch.equal(batch["sampling_per_token_logps"][:, 0], -drawn[:, 0].float())
    assert len({*drawn[:, 0].tolist()}) > 1


STATES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda file: file.unlink(), "selector-state.parquet is missing: resume from"),
    "empty": (lambda file: file.write_bytes(b""), "is empty: resume from another checkpoint"),
    "torn": (lambda file: file.write_bytes(file.read_bytes()[:-400]), "state.parquet "),
    "flipped": (
        lambda file: file.write_bytes(file.read_bytes().replace(b"predicted", b"predikted", 1)),
        "does not match its hash",
    ),
    "without a proof": (lambda file: pq.write_table(pa.table({"a": [1]}), file), "has no proof"),
    "swapped": (
        lambda file: shutil.copy(file.parents[1] / "checkpoint-2" / STATE, file),
        "is from update 2, not from 4",
    ),
}


@pytest.fixture(scope="module")
def checkpoints(cell: Cell, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    cell = cell.model_copy(update={"grpo": cell.grpo | {"max_steps": 4}})
    selector = selector_of(cell, "predicted")
    trainer = trainer_of(cell, folder, selector)
    selector.attach(trainer)
    trainer.train()
    return folder


def resumed(cell: Cell, folder: Path, selector: PromptSelector) -> Any:
    trainer = trainer_of(cell, folder, selector, max_steps=5)
    selector.attach(trainer)
    trainer.train(resume_from_checkpoint=True)
    return trainer


@pytest.mark.parametrize("kind", STATES)
def test_a_state_that_cannot_be_used_is_refused(
    tmp_path: Path, cell: Cell, checkpoints: Path, kind: str
) -> None:
    damage, message = STATES[kind]
    folder = shutil.copytree(checkpoints, tmp_path / "run")
    damage(folder / "checkpoint-4" / STATE)
    with pytest.raises(UserError, match=message):
        resumed(cell, folder, selector_of(cell, "predicted"))


@pytest.mark.parametrize(
    ("policy", "changes", "message"),
    [
        ("predicted", {"seed": 4}, "seed is 3, .* 4"),
        ("dynamic", {}, "policy is 'predicted', .* 'dynamic'"),
        ("predicted", {"options": {"of": "hard"}}, "options is {'discount': 0.98}"),
        ("predicted", {"correct_from": 0.5}, "correct_from is 1.0, .* 0.5"),
    ],
)
def test_a_state_of_another_selector_is_refused(
    cell: Cell, checkpoints: Path, policy: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        resumed(cell, checkpoints, selector_of(cell, policy, **changes))
    selector = selector_of(cell, "predicted")
    selector.attach(trainer_of(cell, checkpoints, selector))
    selector._trainer.state.global_step = 4
    selector.load(checkpoints / "checkpoint-4")


def test_settings_of_the_trainer_that_do_not_fit_are_refused(
    tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector, wide = selector_of(cell, "predicted"), selector_of(cell, "dynamic")
    few = selector_of(cell, "hard", budget=8)
    trainer = trainer_of(cell, tmp_path, selector)
    with_images = wide.dataset.add_column("images", [[]] * len(wide.dataset))  # type: ignore[arg-type]
    wrong: list[tuple[PromptSelector, Any, str, Any, str]] = [
        (
            selector,
            trainer.args,
            "gradient_accumulation_steps",
            2,
            "0.5: write steps_per_generation",
        ),
        (selector, trainer.args, "num_iterations", 3, r"save_steps \(2\) .*3"),
        (selector, trainer.args, "remove_unused_columns", True, "drops prompt_id"),
        (selector, trainer.args, "generation_batch_size", 65 * G, "takes 65 prompts, and .* 64"),
        (selector, trainer, "train_dataset", selector.dataset.select([1, 0]), "other prompts"),
        (few, trainer, "reward_func_names", ["reward"], "other prompts"),
        (selector, trainer, "train_dataset", None, "other prompts"),
        (selector, trainer, "reward_func_names", ["a", "b"], "several reward functions"),
        (wide, trainer, "tools", [print], "'dynamic' .*leave out tools"),
        (wide, trainer, "rollout_func", print, "leave out rollout_func"),
        (wide, trainer, "train_dataset", with_images, "leave out images"),
    ]
    for own, where, name, value, message in wrong:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            with pytest.raises(UserError, match=message):
                own.attach(trainer)
    with monkeypatch.context() as patch:
        patch.setattr(type(trainer.accelerator), "num_processes", 3)
        with refused("num_generations", "multiple of 3"):
            wide.attach(trainer)
    few_rows = trainer_of(cell, tmp_path, few)
    few_rows.args.generation_batch_size = 9 * G
    with refused("9 prompts", "'hard' selects 8"):
        few.attach(few_rows)
    with refused("correct_by 'none'", "'reward'"):
        selector_of(cell, "predicted", correct_by="none").attach(trainer)
    with pytest.raises(UserError, match="trl.GRPOTrainer"):
        selector.attach(object())
    with pytest.raises(UserError, match="'other'"):
        selector_of(cell, f"{__name__}:Elsewhere").attach(trainer)
    selector.attach(trainer)
    assert trainer.callback_handler.callbacks.count(selector) == 1
    with pytest.raises(UserError, match="GRPOTrainer has a selector"):
        selector.attach(trainer)
    with pytest.raises(UserError, match="has a trainer"):
        selector.attach(trainer_of(cell, tmp_path / "other", selector))


def test_the_example_of_the_page_runs_and_is_short(
    tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "trainers.md").read_text()
    [code] = re.findall(r"```python\n(# train_online.py\n.*?)```", page, re.DOTALL)
    lines = [line for line in code.split("\n") if line.strip() and not line.startswith("#")]
    assert len(lines) <= 15 and max(map(len, lines)) <= 100
    [commands] = re.findall(r"```\n(decile select.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    pq.write_table(rated_pool(cell), "rates.parquet")
    for command in commands.strip().split("\n"):
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    sizes = "max_steps=2, save_steps=2, max_completion_length=8, use_cpu=True, bf16=False"
    model = str(embedded_path("tiny"))
    for written, here in (("max_steps=200, save_steps=50", sizes), ("Qwen/Qwen3-0.6B", model)):
        assert code.count(written) == 1
        code = code.replace(written, here)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["selector"].table()) == 2 and len(names["pool"]) == 64
    assert (tmp_path / "out" / "checkpoint-2" / STATE).exists()


def test_no_trainer_gets_rows_of_a_selector_that_is_not_attached(
    tmp_path: Path, cell: Cell
) -> None:
    selector = selector_of(cell, "predicted")
    assert selector.dataset[0]["prompt_id"] == selector.dataset["prompt_id"][0]
    for callbacks in ([], [selector]):
        trainer = trainer_of(cell, tmp_path, selector)
        for callback in callbacks:
            trainer.add_callback(callback)
        with pytest.raises(UserError, match=r"selector.attach\(trainer\)"):
            trainer.train()
    trainer = trainer_of(cell, tmp_path, selector)
    trainer.train_dataset = selector.dataset.with_format(None)  # a copy, as some trainers make
    selector.attach(trainer)
    assert len(next(iter(trainer.get_train_dataloader())))
    subset = selector_of(cell, "hard")
    assert len(next(iter(trainer_of(cell, tmp_path, subset).get_train_dataloader())))


def dataset_of(**columns: list[str | None]) -> dict[str, Dataset]:
    return {"dataset": Dataset.from_dict(columns)}


@pytest.mark.parametrize(
    ("policy", "changes", "message"),
    [
        ("predicted", {"budget": 0}, "budget 0:"),
        ("predicted", {"budget": 1.5}, "budget 1.5:"),
        ("predicted", {"budget": True}, "budget True"),
        ("random", {"budget": 0.001}, "budget 0.001 .*64 prompts"),
        ("random", {"budget": 65}, "65 .*64"),
        ("predicted", {"seed": -1}, "seed -1"),
        ("predicted", {"options": ["of"]}, "options .* write a dict"),
        ("predicted", {"options": {"off": "hard"}}, "has no option 'off'"),
        (
            "hard",
            {"table": rates([0.5]).append_column("n", pa.array(["x"])), "budget": 1},
            "table: .*'x'.*: .*pass_rate, n, successes",
        ),
        ("predicted", {"correct_from": float("nan")}, "correct_from nan"),
        ("predicted", {"correct_by": 3}, "correct_by 3"),
        ("predikted", {}, "predikted"),
        (None, {}, "policy None"),
        ("predicted", {"table": None}, "'predicted' needs .*probe"),
        ("dynamic", {"table": None, "options": {"of": "hard"}}, "'dynamic' needs .*probe"),
        ("hard", {"table": {"prompt_id": ["a"]}}, "table is dict: .*pyarrow.Table"),
        ("hard", {"table": pa.table({"prompt_id": ["a"]})}, "no column pass_rate"),
        ("predicted", {"table": rates([0.5])}, "column n: .*'predicted' needs prompt_id"),
        ("hard", {"table": rates([0.5, 1.5])}, "'p1' is 1.5"),
        ("hard", {"table": rates([])}, "table: has no rows"),
        ("hard", {"table": rates([0.5]), "budget": 1}, "1 of 1 prompt has no row, such as 'p0'"),
        ("hard", {"table": "nowhere.parquet"}, "table nowhere.parquet: .*No such file"),
        ("hard", {"table": __file__}, "decile probe"),
        ("hard", {"probe": SimpleNamespace(table=rates([0.5]))}, "probe and table: write one"),
        ("hard", {"dataset": [{"prompt_id": "p0"}]}, "dataset is list: .*datasets.Dataset"),
        ("hard", dataset_of(prompt=["x"]), "has no column prompt_id"),
        ("hard", dataset_of(prompt_id=["a"]), "has no column prompt"),
        (
            "hard",
            dataset_of(prompt_id=["a", None], prompt=["x", "y"]),
            "dataset .*without prompt_id",
        ),
        ("hard", dataset_of(prompt_id=["a", "a"], prompt=["x", "y"]), "prompt_id 'a' twice"),
        ("hard", {"dataset": None, "table": None}, "no prompts: write probe="),
    ],
)
def test_wrong_values_are_refused(
    cell: Cell, policy: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as raised:
        selector_of(cell, policy, **changes)
    assert "\n" not in str(raised.value)


class Elsewhere:
    """An online policy that returns what is not there."""

    def next(self, update: int, history: History) -> list[str]:
        return ["other", *map(str, history.prompt_ids[: history.size - 1])]


def test_a_probe_a_file_and_a_table_give_the_same_subset(tmp_path: Path, cell: Cell) -> None:
    pool, table = load_pool(cell.probe.dataset), rated_pool(cell)
    pq.write_table(table, tmp_path / "rates.parquet")
    probe = SimpleNamespace(table=table, prompts=[*pool.train], task=pool.task)
    given: list[dict[str, Any]] = [
        {"probe": probe},
        {"probe": probe, "dataset": rows_of(cell)},
        {"table": str(tmp_path / "rates.parquet"), "dataset": rows_of(cell)},
        {"table": table.take(np.arange(64)[::-1]), "dataset": rows_of(cell)},
        {"table": table, "dataset": rows_of(cell)},
    ]
    selectors = [PromptSelector("hard", budget=0.25, seed=2, **each) for each in given]
    assert all(each.subset == selectors[0].subset for each in selectors)
    assert all(each.dataset[:] == selectors[0].dataset[:] for each in selectors)
    ids = selectors[0].dataset["prompt_id"][:]
    assert len(ids) == 16 and ids == sorted(ids) and {*ids} < {*rows_of(cell)["prompt_id"]}
    assert set(pc.unique(selectors[0].subset["pass_rate"]).to_pylist()) == {0.0, 0.25}
    numbers = {"prompt_id": [3, 1, 20], "prompt": ["c", "a", "t"]}
    rated = pa.table({"prompt_id": [20, 3, 1], "pass_rate": [0.1, 0.2, 0.9]})
    of_numbers = PromptSelector("hard", table=rated, dataset=Dataset.from_dict(numbers), budget=2)
    assert of_numbers.dataset["prompt"][:] == ["t", "c"]
    free = PromptSelector("random", dataset=rows_of(cell), budget=8)
    assert len(free.dataset) == 8
    data = table_bytes(table, "a.parquet")
    (tmp_path / "torn.parquet").write_bytes(data[:200] + b"x" + data[201:])
    with refused(tmp_path / "torn.parquet"):
        PromptSelector("hard", table=tmp_path / "torn.parquet", dataset=rows_of(cell))
