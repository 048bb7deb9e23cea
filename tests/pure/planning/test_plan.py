"""Cells and their ids: equal content gives the same id; a changed result needs another id."""

from pathlib import Path
from typing import Any

import pytest
from factories import small_plan
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from paths import ROOT
from remedies import place, refused

from orchestrator.cli.doctor import checks
from orchestrator.cli.plan_summary import plan_summary
from orchestrator.config.catalog import load_config
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.pipeline.manifest import id_settings
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.planning import load
from orchestrator.planning.cells import Cell
from orchestrator.planning.load import check_models, fetch_command, repositories
from orchestrator.planning.plan import Plan
from orchestrator.planning.resolve import datasets_of
from orchestrator.probing.probe import sampler_groups
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import Store
from tasks import get_task
from tasks.sources.hub import Repository

GRPO = {"max_steps": 4, "num_generations": 4, "per_device_train_batch_size": 8}


def only(folder: Path, **settings: object) -> Cell:
    [cell] = small_plan(folder, policies=["hard"], **settings).cells
    return cell


def test_settings_that_cannot_change_a_result_keep_the_id(tmp_path: Path) -> None:
    plain = only(tmp_path)
    assert only(tmp_path, name="other").cell_id == plain.cell_id
    assert only(tmp_path, resources={"cpus": 0.5}).cell_id == plain.cell_id
    assert only(tmp_path, resources={"gpus": 0.25}).cell_id == plain.cell_id
    assert only(tmp_path, about="words").cell_id == plain.cell_id
    assert only(tmp_path, budget=0.2).cell_id == plain.cell_id, "8 of 40 either way"
    assert only(tmp_path, grpo=GRPO).cell_id == plain.cell_id
    assert only(tmp_path, grpo=GRPO | {"beta": 0.0}).cell_id == plain.cell_id, "Decile's default"
    assert id_settings(only(tmp_path, name="other", resources={"gpus": 0.25})) == id_settings(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"budget": 9},
        {"marking": "strict"},
        {"probe": {"samples": 5, "max_completion_length": 32}},
        {"probe": {"samples": 4, "max_completion_length": 33}},
        {"lora": {"r": 5}},
        {"evaluate": {"every": 3, "samples": 8}},
        {"evaluate": {"every": 2, "samples": 7}},
        {"evaluate": {"every": 2, "samples": 8, "temperature": 0.5}},
        {"seeds": [7]},
        {"updates": 5},
        {"resources": {"workers": 2}},
        {"grpo": GRPO | {"beta": 0.04}},
    ],
)
def test_settings_that_can_change_a_result_change_the_id(tmp_path: Path, change: dict) -> None:
    plain, changed = only(tmp_path), only(tmp_path, **change)
    assert changed.cell_id != plain.cell_id
    if changed.axes == plain.axes:
        assert id_settings(changed) != id_settings(plain), "plan says what has changed"


def test_stored_probes_subsets_and_cells_are_found_by_what_they_have_always_hashed(
    tmp_path: Path,
) -> None:
    """Under other names or in another form, every stored result would be made again."""
    probe = {"samples": 4, "max_completion_length": 32, "stop": ["Q:"], "engine": "vllm"}
    cell = only(
        tmp_path,
        probe=probe | {"engine_args": {"quantization": "fp8"}},
        evaluate={"every": 2, "samples": 8, "greedy": True, "ood": ["arithmetic"]},
    )
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_completion_length": 32}
    sampling |= {"seed": 0, "stop": ["Q:"], "engine": "vllm"}
    model = {"identity": cell.probe.model.identity, "dtype": "auto", "chat_template_kwargs": {}}
    assert cell.probe.identity == {
        "model": model,
        "template": cell.probe.template,
        "task": "shuffled_objects",
        "sampling": sampling | {"engine_args": {"quantization": "fp8"}},
    }
    assert cell.probe.key == canonical_hash(cell.probe.identity)
    assert cell.subset_identity == {
        **{"probe_key": cell.probe.key, "samples": 4, "marker": "shuffled_objects/3/lenient"},
        **{"pool": cell.train_hash, "policy": "hard", "options": {}, "size": 8, "match": []},
        **{"seed": 0, "count_truncated": "wrong", "group_size": 4},
    }
    assert cell.subset_key == canonical_hash(cell.subset_identity)
    greedy, ood = (extra.probe for extra in cell.extra_evals)
    assert (greedy.settings.samples, ood.dataset.name) == (1, "arithmetic")
    identity = {
        "subset": cell.subset_identity,
        "evaluation": [cell.baseline.key, 8, cell.test_hash],
        "also": [
            [greedy.key, 1, cell.test_hash],
            [ood.key, 8, cell.extra_evals[1].test_hash, "arithmetic/4/lenient"],
        ],
        "every": 2,
        "grpo": cell.grpo,
        "mask_dead_groups": False,
        "lora": cell.lora,
        "workers": 1,
    }
    assert cell.cell_id == canonical_hash(identity)
    again = Cell.model_validate_json(cell.model_dump_json())
    assert (again, again.cell_id, again.subset_key) == (cell, cell.cell_id, cell.subset_key)
    online = PolicyEntry(policy="dynamic")
    changed = Cell.model_validate(cell.model_dump() | {"rollouts_by": "trl", "online": online})
    added = {"rollouts_by": "trl", "online": {"policy": "dynamic", "options": {"max_draws": 4}}}
    assert changed.cell_id == canonical_hash(identity | added)


def test_a_new_marker_of_an_ood_test_set_changes_the_cell_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids() -> list[str]:
        evaluations = ({"greedy": True}, {"greedy": True, "ood": ["arithmetic"]})
        return [only(tmp_path, evaluate=evaluate).cell_id for evaluate in evaluations]

    plain, with_ood = ids()
    monkeypatch.setattr("tasks.arithmetic.Arithmetic.marker_version", 99)
    assert ids()[0] == plain
    assert ids()[1] != with_ood


def test_a_probe_is_shared_across_pools_k_and_marking_but_not_across_sampling_and_models(
    tmp_path: Path,
) -> None:
    key = only(tmp_path).probe.key
    base = {"samples": 4, "max_completion_length": 32}
    assert only(tmp_path, probe=base | {"samples": 9}).probe.key == key
    assert only(tmp_path, marking="strict").probe.key == key
    assert only(tmp_path, datasets={"small": letters(train=80)}).probe.key == key
    keys = [key]
    for change in ({"temperature": 0.5}, {"seed": 1}, {"max_completion_length": 31}, {"top_k": 5}):
        keys.append(only(tmp_path, probe=base | change).probe.key)
    for change in ({"dtype": "float32"}, {"chat_template_kwargs": {"enable_thinking": False}}):
        keys.append(only(tmp_path, models={"stub": stub(tmp_path, **change)}).probe.key)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other")
    keys.append(only(tmp_path).probe.key)
    assert len({*keys}) == len(keys)


def stub(folder: Path, **entry: object) -> dict[str, object]:
    """The entry of the model of `small_plan`."""
    return {"path": str(folder / "model"), **entry}


def letters(train: int = 40, test: int = 12, **entry: object) -> dict[str, object]:
    """An entry of a dataset such as that of `small_plan`."""
    options = {"train": train, "test": test}
    return {"task": "shuffled_objects", "options": options, **entry}


@pytest.mark.parametrize(
    ("budget", "code", "values"),
    [
        (41, "budget-exceeds-pool", ("40",)),
        (0.01, "budget-exceeds-pool", ("40",)),
        (0.025, "budget-does-not-fill-updates", ("1 prompt,", "2 of")),
    ],
)
def test_a_budget_that_does_not_fit_is_refused_at_its_line(
    tmp_path: Path, budget: float, code: str, values: tuple[str, ...]
) -> None:
    assert only(tmp_path, budget=1.0).size == only(tmp_path, budget=40).size == 40
    with refused(*values, code=code) as caught:
        only(tmp_path, budget=budget)
    assert place(tmp_path / "experiments.yaml", f"budget: {budget}") in str(caught.value)


def test_a_cell_of_a_larger_grid_is_that_of_a_smaller_one_in_another_order(tmp_path: Path) -> None:
    grid = {
        "model": ["stub", "other"],
        "dataset": ["small", "large"],
        "policy": ["hard", "easy", "random"],
        "seed": [0, 1],
    }
    plan = small_plan(tmp_path, datasets={"large": letters(train=41)}, grid=grid)
    ids = {cell.name: cell.cell_id for cell in plan.cells}
    assert len(plan.cells) == len({*ids.values()}) == 2 * 2 * 3 * 2
    assert len(plan.probes) == 2 * 2 * 2, "a training pool and a test set per model and dataset"
    fewer = small_plan(tmp_path, policies=["random", "hard"], seeds=[1, 0]).cells
    assert {cell.name: cell.cell_id for cell in fewer}.items() < ids.items()
    renamed = {"datasets": {"named": letters()}, "grid": grid | {"dataset": ["named"]}}
    assert {cell.cell_id for cell in small_plan(tmp_path, **renamed).cells} == {
        cell.cell_id for cell in plan.cells if cell.probe.dataset.name == "small"
    }


def test_two_names_of_one_model_are_refused(tmp_path: Path) -> None:
    grid = {"model": ["stub", "again"], "dataset": ["small"], "policy": ["hard"]}
    with refused("stub/small/hard/s0", "again/small/hard/s0", code="same-cell") as caught:
        small_plan(tmp_path, models={"again": stub(tmp_path)}, grid=grid)
    assert place(tmp_path / "experiments.yaml", "grid:") in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "code", "values"),
    [
        ("train", "many", "invalid-dataset", ("train", "many'")),
        ("train", 0, "no-training-prompts", ()),
        ("test", 0, "no-test-questions", ()),
        ("trian", 40, "invalid-dataset", ("'trian'", "train, test")),
    ],
)
def test_an_invalid_dataset_is_refused_with_its_line(
    tmp_path: Path, option: str, value: object, code: str, values: tuple[str, ...]
) -> None:
    dataset = {"task": "shuffled_objects", "options": {"train": 40, "test": 12, option: value}}
    with refused("datasets.small", *values, code=code) as caught:
        only(tmp_path, datasets={"small": dataset})
    assert f"{tmp_path}/experiments.yaml:2: " in str(caught.value)


def test_a_pool_whose_rows_are_all_dropped_says_why(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"question": "How many?", "answer": "Some."}\n')
    dataset = {"task": "gsm8k", "options": {"path": str(tmp_path), "partial": True}}
    with refused("train: 1 row dropped", code="no-training-prompts"):
        only(tmp_path, datasets={"small": dataset})


def test_a_folder_without_a_model_is_refused_with_its_line(tmp_path: Path) -> None:
    with refused("models.stub", "config.json") as caught:
        only(tmp_path, models={"stub": {"path": str(tmp_path / "none")}})
    assert place(tmp_path / "experiments.yaml", " stub:") in str(caught.value)


def test_what_is_read_from_the_hub_is_listed_with_who_needs_it() -> None:
    commit, other = "a" * 40, "b" * 40
    models = [
        ModelSource("one", "org/model", "x", commit),
        ModelSource("two", "org/model", "x", commit),
        ModelSource("three", "org/model", "x", other),
        ModelSource("here", "/models/here", "x"),
    ]
    tasks = {"math": get_task("math", revision=commit), "stub": get_task("shuffled_objects")}
    assert repositories(models, tasks) == {
        Repository("model", "org/model", commit): ["one", "two"],
        Repository("model", "org/model", other): ["three"],
        **{repository: ["math"] for repository in tasks["math"].downloads},  # type: ignore
    }


def test_a_model_that_is_neither_cached_nor_reachable_is_refused_at_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "e.yaml"
    commit = "a" * 40
    hub = f"far: {{hub: org/far, revision: {commit}}}"
    grid = "grid: {model: [here], dataset: [shuffled_objects], policy: [hard]}"
    experiments = f"experiments:\n  q: {{{grid}}}\n"
    file.write_text(f"models:\n  here: {{embedded: tiny}}\n  {hub}\n{experiments}")
    loaded = load_config(file)
    far = ModelSource("far", "org/far", "x", commit)
    models = [ModelSource("here", "/models/here", "x"), far]
    reasons = ["the network is down", ""]
    monkeypatch.setattr(load, "unreachable", lambda: reasons[0])
    command = f"decile fetch {file} -e 'my sweep'"
    with (
        refused(f"org/far@{commit}", reasons[0], command, code="not-downloaded") as caught,
        loaded.located(),
    ):
        check_models(models, command)
    assert str(caught.value).startswith(f"{file}:3: models.far: ")
    assert fetch_command(loaded.file, "my sweep") == command
    check_models(models[:1], command)
    reasons.pop(0)
    check_models(models, command)  # it can be downloaded
    snapshot = Repository("model", "org/far", commit).snapshot
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (snapshot / name).write_text("{}")
    reasons.insert(0, "the network is down")
    check_models(models, command)


def test_a_cell_counts_its_updates_and_rollouts(tmp_path: Path) -> None:
    grpo = GRPO | {"gradient_accumulation_steps": 3}
    cell = only(tmp_path, grpo=grpo, resources={"workers": 2}, budget=12)
    assert cell.prompts_per_update == 8 * 3 * 2 // 4 == 12
    assert (cell.updates, cell.rollouts) == (4, 4 * 8 * 3 * 2)
    with refused("11 prompts", "12 of", code="budget-does-not-fill-updates"):
        only(tmp_path, grpo=grpo, resources={"workers": 2}, budget=11)


@pytest.mark.parametrize(("budget", "copies"), [(1, 4), (2, 2), (4, 1), (5, 1)])
def test_an_update_repeats_the_prompts_of_a_smaller_count(
    tmp_path: Path, budget: int, copies: int
) -> None:
    cell = only(tmp_path, budget=budget, grpo=GRPO | {"gradient_accumulation_steps": 2})
    assert (cell.batch.copies(cell.size), cell.rollouts) == (copies, 4 * 16)


@pytest.mark.parametrize(
    ("policy", "budget", "values"),
    [
        ("hard", 3, ("3 prompts", "4 of", "divides 4")),
        ("hard", 0.05, ("2 prompts", "4 of")),
        ("of_hard", 2, ("2 prompts", "4 of")),
        ("dynamic", 2, ()),
    ],
)
def test_prompts_are_repeated_only_for_a_count_that_divides_an_update(
    tmp_path: Path, policy: str, budget: float, values: tuple[str, ...]
) -> None:
    """And not those of an online policy, which would choose among too few."""
    settings: dict[str, Any] = {
        "policies": [policy],
        "rules": {"of_hard": {"policy": "dynamic", "options": {"of": "hard"}}},
        "budget": budget,
        "grpo": GRPO | {"gradient_accumulation_steps": 2},
    }
    if values:
        with refused(*values, code="budget-does-not-fill-updates") as caught:
            small_plan(tmp_path, **settings)
        assert ("divides" in str(caught.value)) == ("divides 4" in values)
    else:
        assert small_plan(tmp_path, **settings).cells[0].size == 40


def test_no_prompt_is_repeated_where_an_allocation_divides_the_rollouts(tmp_path: Path) -> None:
    grpo = GRPO | {"gradient_accumulation_steps": 2}
    with refused("2 prompts", "4 of", code="budget-does-not-fill-updates"):
        only(tmp_path, grpo=grpo, budget=2, allocation="pods")


@pytest.mark.parametrize(
    ("settings", "rollouts"),
    [
        ({}, 4 * 16),
        ({"num_iterations": 2}, 2 * 16),
        ({"num_iterations": 3}, 2 * 16),  # the second generation serves one update
        ({"steps_per_generation": 1}, 8 * 8),
        ({"generation_batch_size": 32}, 2 * 32),
    ],
)
def test_rollouts_that_serve_several_updates_count_once(
    tmp_path: Path, settings: dict[str, int], rollouts: int
) -> None:
    grpo = GRPO | {"gradient_accumulation_steps": 2} | settings
    assert only(tmp_path, grpo=grpo, budget=8).rollouts == rollouts


@pytest.mark.parametrize(
    ("settings", "budget", "values"),
    [
        ({"steps_per_generation": 4}, 8, ()),
        ({"steps_per_generation": 5}, 8, ("8 prompts", "10 of")),
        ({"generation_batch_size": 40}, 8, ("8 prompts", "10 of")),
        ({"steps_per_generation": 1}, 8, ()),
        ({"steps_per_generation": 1, "max_steps": 3}, 6, ("3 micro-batches", "1 in place of 2")),
        ({"steps_per_generation": 1, "max_steps": 1}, 6, ()),
        ({"steps_per_generation": 1, "max_steps": 4, "num_iterations": 2}, 6, ()),
    ],
)
def test_a_subset_fills_its_generations_and_updates(
    tmp_path: Path, settings: dict[str, int], budget: int, values: tuple[str, ...]
) -> None:
    """As TRL cuts them short without a word. Micro-batches here hold two prompts."""
    grpo = GRPO | {"gradient_accumulation_steps": 2} | settings
    if values:
        with refused(*values, code="budget-does-not-fill-updates"):
            only(tmp_path, grpo=grpo, budget=budget)
    else:
        assert only(tmp_path, grpo=grpo, budget=budget).prompts_per_update == 4


@pytest.mark.parametrize(
    "prompt",
    [
        {"preset": "paper"},
        {"system": "Be brief."},
        {"few_shot": [{"question": "1+1?", "answer": r"\boxed{2}"}]},
    ],
)
def test_the_wording_is_part_of_every_key(tmp_path: Path, prompt: dict) -> None:
    plain, other = only(tmp_path), only(tmp_path, datasets={"small": letters(prompt=prompt)})
    assert plain.probe.key != other.probe.key
    assert plain.baseline.key != other.baseline.key
    assert plain.cell_id != other.cell_id
    assert plain.train_hash == other.train_hash


def test_the_papers_wording_disables_thinking_unless_the_model_sets_it(
    tmp_path: Path,
) -> None:
    papers = {"small": letters(prompt={"preset": "paper"})}
    cell = only(tmp_path, datasets=papers)
    assert cell.probe.model.chat_template_kwargs == {"enable_thinking": False}
    thinking = {"enable_thinking": True}
    own = {"stub": stub(tmp_path, chat_template_kwargs=thinking)}
    cell = only(tmp_path, datasets=papers, models=own)
    assert cell.probe.model.chat_template_kwargs == thinking


def test_dropping_overlap_changes_the_pool_and_adds_a_note(tmp_path: Path) -> None:
    train_file = tmp_path / "train.jsonl"
    rows = [f'{{"question": "How many apples are {i}?", "answer": "{i}"}}' for i in range(40)]
    train_file.write_text("\n".join(rows))
    test_file = tmp_path / "test.jsonl"
    test_file.write_text('{"question": "how many APPLES are 3 ?", "answer": "3"}')
    files = {"train": str(train_file), "test": str(test_file)}
    kept, dropped = (
        small_plan(
            tmp_path, datasets={"small": {"task": "file", "options": files, "drop_overlap": drop}}
        )
        for drop in (False, True)
    )
    assert (len(kept.pools["small"].train), len(dropped.pools["small"].train)) == (40, 39)
    assert dropped.pools["small"].notes[-1].startswith("dropped: overlap with test: 1 of 40")
    assert kept.cells[0].cell_id != dropped.cells[0].cell_id


@pytest.mark.parametrize(
    ("question", "drop_overlap"),
    [("How many apples are {}?", False), ("HOW many apples are {} ?", True)],
)
def test_a_pool_of_test_questions_only_is_not_called_evaluation_only(
    tmp_path: Path, question: str, drop_overlap: bool
) -> None:
    for name, text in (("train", "How many apples are {}?"), ("test", question)):
        rows = (f'{{"question": "{text.format(i)}", "answer": "{i}"}}' for i in range(40))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))

    files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "test")}
    dataset = {"task": "file", "options": files, "drop_overlap": drop_overlap}
    with refused("all 40", code="no-training-prompts") as caught:
        only(tmp_path, datasets={"small": dataset})
    assert ("near duplicates" in str(caught.value)) == drop_overlap


def test_datasets_are_listed_once_for_all_experiments_or_for_one() -> None:
    source = load_config(ROOT / "experiments.yaml")
    assert list(datasets_of(source, "quickstart")) == ["quickstart/shuffled_objects"]
    names = [dataset.name for dataset in datasets_of(source).values()]
    assert names.count("shuffled_objects") == names.count("gsm8k") == 1
    with refused("'quick'", "quickstart"):
        datasets_of(source, "quick")


def test_a_ray_that_does_not_start_fails_the_doctors_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ray_session() -> None:
        raise AssertionError("no free port")

    monkeypatch.setattr("cluster.session.ray_session", ray_session)
    for name in ("_machine", "_embedded"):
        monkeypatch.setattr(f"orchestrator.cli.doctor.{name}", str)
    monkeypatch.setattr("orchestrator.cli.doctor._mlflow", str)
    assert list(checks())[-1] == ("ray", False, "AssertionError: no free port")


DATASETS = {  # `far` has other questions than `few`, and `more` those of `few` and others
    name: {"task": "shuffled_objects", "options": options}
    for name, options in {
        "few": {"train": 20, "test": 3},
        "far": {"train": 20, "test": 4, "objects": [5]},
        "more": {"train": 21, "test": 5},
    }.items()
}
SEEDS = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True)
FEW = {"dataset": ["few"]}
BOTH = {"dataset": ["few", "far"]}


def drawn_plan(folder: Path, grid: dict, evaluate: dict, probe: dict) -> Plan:
    axes = {"model": ["stub"], "policy": ["hard", "random"], **grid}
    return small_plan(folder, datasets=DATASETS, grid=axes, evaluate=evaluate, probe=probe)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(BOTH, {"ood": ["few", "far"], "samples": 2, "ood_samples": 8}, {})
@example(FEW, {"samples": 4, "temperature": 0, "greedy": True}, {})
@example({**FEW, "probe_seed": [0, 1]}, {"seed": 1, "samples": 9}, {"samples": 2})
@given(
    grid=st.fixed_dictionaries(
        {"dataset": st.lists(st.sampled_from([*DATASETS]), min_size=1, unique=True)},
        optional={"probe_seed": SEEDS, "seed": SEEDS},
    ),
    evaluate=st.fixed_dictionaries(
        {"samples": st.integers(1, 9), "ood": st.lists(st.sampled_from([*DATASETS]), unique=True)},
        optional={
            "ood_samples": st.integers(1, 9),
            "greedy": st.booleans(),
            "temperature": st.sampled_from([0, 0.5, 1]),
            "seed": st.integers(0, 2),
        },
    ),
    probe=st.fixed_dictionaries(
        {"samples": st.integers(1, 5)}, optional={"temperature": st.sampled_from([0, 0.5, 1])}
    ),
)
def test_every_sample_that_a_cell_reads_is_scheduled(
    tmp_path: Path, grid: dict, evaluate: dict, probe: dict
) -> None:
    plan = drawn_plan(tmp_path, grid, evaluate, probe)
    store = Store(str(tmp_path / "runs"))
    read = {
        (spec.key, prompt.prompt_id, index)
        for cell in plan.cells
        for spec in (cell.probe, cell.baseline, *(extra.probe for extra in cell.extra_evals))
        for prompt in plan.pool(spec).prompts(spec.split)
        for index in range(spec.settings.samples)
    }
    scheduled = [
        (spec.key, prompt.prompt_id, index)
        for spec in plan.probes
        for prompt, indices in Run.of(plan, store).pending_after_earlier_probes(spec).work
        for index in indices
    ]
    assert read <= set(scheduled)


def test_probes_of_one_sampler_are_drawn_by_the_same_actors(tmp_path: Path) -> None:
    def groups(evaluate: dict, probe: dict) -> list[int]:
        plan = drawn_plan(tmp_path, BOTH, evaluate, probe)
        assert len(plan.probes) == 4
        return sorted(map(len, sampler_groups(plan)))

    assert groups({"samples": 2, "temperature": 0.5}, {"samples": 3}) == [4]
    assert groups({"engine": "vllm"}, {}) == [2, 2]
    memory = {"engine_args": {"gpu_memory_utilization": 0.5}}
    assert groups({"engine": "vllm", **memory}, {"engine": "vllm"}) == [2, 2]
    assert groups({}, {"adaptive": True}) == [1, 1, 2]


@pytest.mark.parametrize(
    ("policy", "budget", "updates", "noted"),
    [
        ("hard", 8, 3, True),
        ("hard", 8, 4, False),
        ("hard", 40, 4, False),
        ("full", 8, 4, False),
        ("dynamic", 8, 4, False),
    ],
)
def test_updates_that_do_not_use_up_a_budget_are_said(
    tmp_path: Path, policy: str, budget: int, updates: int, noted: bool
) -> None:
    plan = small_plan(tmp_path, policies=[policy], budget=budget, updates=updates)
    notes = plan.unused_budgets
    assert len(notes) == noted, "one for all seeds and policies"
    assert all("6 of the 8" in note and "max_steps: 4" in note for note in notes)
    summary = plan_summary(Run.of(plan, Store(plan.source.config.storage)), Site({"CPU": 1}))
    assert [f"warning: {note}" for note in notes] == [
        note for note in summary.notes if "epochs" in note
    ]
