"""experiments.yaml: what loads, and the error for each mistake."""

import ast
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from remedies import problems

from orchestrator.config import library_settings
from orchestrator.config.catalog import load_config
from orchestrator.config.experiment import Experiment
from orchestrator.config.grpo import GrpoBatch, GrpoSettings
from orchestrator.config.library_settings import GRPO_DEFAULTS
from orchestrator.config.yaml_lines import MAX_DIGITS, MAX_VALUES, load, named_values
from orchestrator.storage.errors import UserError

GOOD = """\
storage: ./runs
models:
  tiny: {embedded: tiny}
experiments:
  q:
    grid:
      model: [tiny]
      dataset: [shuffled_objects]
      policy: [hard, random]
    budget: 0.1
    grpo: {num_generations: 8, per_device_train_batch_size: 16, learning_rate: 1e-4}
    lora: {r: 8}
"""


DATASET = """\
datasets:
  mine: {task: gsm8k, prompt: PROMPT}
experiments:
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "experiments.yaml"
    file.write_text(text)
    return file


def refusal(folder: Path, old: str, new: str) -> UserError:
    assert old in GOOD
    with pytest.raises(UserError) as caught:
        load_config(written(folder, GOOD.replace(old, new)))
    return caught.value


def loaded(folder: Path, old: str = "", new: str = "") -> Experiment:
    """The experiment of the good file with this change."""
    assert old in GOOD
    return load_config(written(folder, GOOD.replace(old, new) if old else GOOD)).experiment("q")


def test_a_valid_file_loads_with_its_values(tmp_path: Path) -> None:
    experiment = loaded(tmp_path)
    assert experiment.grid.seed == [0]
    assert experiment.full_grpo()["learning_rate"] == pytest.approx(1e-4)
    assert experiment.full_grpo()["loss_type"] == "dr_grpo"
    assert experiment.subset_size(805) == 80


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("budget: 0.1", "budget 0.1", 10, "KEY: VALUE"),
        ("    budget: 0.1", "\tbudget: 0.1", 10, "tab"),
        ("    budget: 0.1", "   budget: 0.1", 10, "KEY: VALUE"),
        ("budget: 0.1", "about: hard: easy", 10, "': '"),
        ("budget: 0.1", "about: 'hard", 10, "quote"),
        ("budget: 0.1", 'about: "\\d"', 10, "\\\\"),
        ("budget: 0.1", "about: @x", 10, ":#[]{}&*!|>%@`"),
        ("budget: 0.1", "<<: 3", 10, "<<: *NAME"),
        ("budget: 0.1", "1: 2", 10, "'1'"),
        ("budget: 0.1", "[a]: 2", 10, "string"),
        ("lora: {r: 8}", "lora: {r: 8", 12, "{KEY: VALUE"),
        ("lora: {r: 8}", "budget: 0.2", 12, "line 10"),
        ("lora: {r: 8}", "about: !!python/name:os.system", 12, "(!)"),
        ("lora: {r: 8}", "about: &a [*a]", 12, "alias"),
        ("lora: {r: 8}", "about: äöü中中中\n    # \0\n\n\n", 13, "U+0000"),
    ],
)
def test_what_yaml_cannot_read_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    message = str(refusal(tmp_path, old, new))
    assert f"experiments.yaml:{line}: " in message
    assert words in message and problems(message) == []


POLICY = "[hard, random]"
LAST = "lora: {r: 8}"
RATE = "learning_rate: 1e-4"
INVALID_NAMES = ("../q", "a..q", "a\\q", "''", ".q", "q" * 81, '"q\\e[31m"')


@pytest.mark.parametrize(
    ("old", "new", "line", "code", "value"),
    [
        ("budget: 0.1", "budgte: 0.1", 10, "unknown-setting", "'budget'"),
        (LAST, "probe: {sample: 5}", 12, "unknown-setting", "'samples'"),
        *(
            ("budget: 0.1", f"budget: {value}", 10, "invalid-budget", value)
            for value in ("0", "-3", "'tenth'", "true", "'0.1'")
        ),
        ("budget: 0.1", "budget: 1.5", 10, "budget-above-one", "1.0"),
        ("budget: 0.1", "budget: .inf", 10, "budget-above-one", "1.0"),
        ("budget: 0.1", f"budget: {'9' * 500}", 10, "budget-too-large", "1,000,000,000"),
        ("    budget: 0.1", "      budget: 0.1", 10, "list-type", "[0.05, 0.1]"),
        (POLICY, "hard", 9, "list-type", "[hard]"),
        (POLICY, "[]", 9, "too-short", "policy"),
        ("  q:", "  q: 3\n  p:", 5, "model-type", "{grid: {model: [tiny], "),
        ("model: [tiny]", "", 6, "missing", "model: [tiny]"),
        (POLICY, "[hard, no]", 9, "string-type", "no, yes"),
        (POLICY, "[hard, {band: {low: 0}}]", 9, "string-type", "near-half:"),
        (LAST, "probe: {stop: [1]}", 12, "string-type", "'1'"),
        (LAST, "probe: {stop: ['']}", 12, "string-too-short", "''"),
        ("model: [tiny]", "model: [tinny]", 7, "unknown-model", "'tiny'"),
        ("[shuffled_objects]", "[shuffled]", 8, "unknown-dataset", "shuffled_objects, or"),
        ("[shuffled_objects]", "['os:sep']", 8, "unknown-dataset", "tasks.Task"),
        ("[shuffled_objects]", "['mine:']", 8, "unknown-dataset", "package.module:Class"),
        (
            "experiments:",
            "datasets: {d: {task: shufled}}\nexperiments:",
            4,
            "unknown-task",
            "gsm8k",
        ),
        (POLICY, "[hard, hrad]", 9, "unknown-policy", "'hard'"),
        (POLICY, "['nowhere_at_all:first']", 9, "unknown-policy", "ModuleNotFoundError"),
        (POLICY, "['os:sep']", 9, "unknown-policy", "function(table"),
        (POLICY, "[hard, hard]", 9, "listed-twice", "'hard'"),
        (POLICY, f"{POLICY}\n      seed: [1, 2, 1]", 10, "listed-twice", "seed.2"),
        ("size: 16", "size: 12", 11, "group-size", "batch of 16"),
        ("{embedded: tiny}", "{hub: a/b}", 3, "no-revision", "revision: COMMIT"),
        ("{embedded: tiny}", "{embedded: tiny, path: x}", 3, "one-model-source", "hub: ID"),
        ("{embedded: tiny}", "{}", 3, "one-model-source", "hub: ID"),
        ("{embedded: tiny}", "{embedded: huge}", 3, "literal-error", "tiny-arithmetic"),
        ("{embedded: tiny}", "{embedded: tiny, revision: x}", 3, "revision-without-hub", "hub: ID"),
        ("{embedded: tiny}", "{embedded: tiny, load_in_4bit: 1}", 3, "bool-type", "true or false"),
        (LAST, "resources: {gpus: 2}", 12, "gpus-per-worker", "workers: 2"),
        (LAST, "resources: {cpus: 0}", 12, "greater-than", "100,000"),
        (LAST, f"resources: {{workers: {'9' * 500}}}", 12, "less-than-equal", "1 to 100,000"),
        (LAST, "marking: lax", 12, "literal-error", "lenient or strict"),
        (LAST, "max_marking_errors: 1.5", 12, "less-than-equal", "0 to 1"),
        (LAST, "max_hours: 1:30", 12, "float-type", "'1:30'"),
        (LAST, "probe: {samples: 0}", 12, "greater-than-equal", "1 to 10,000"),
        (LAST, "probe: {samples: '10'}", 12, "int-type", "1 to 10,000, such as 10"),
        (LAST, "probe: {samples: 1000000000}", 12, "less-than-equal", "1 to 10,000"),
        (LAST, "probe: {top_p: 0}", 12, "greater-than", "above 0 and at most 1"),
        (LAST, "probe: {temperature: .nan}", 12, "finite-number", "0 to 100"),
        (LAST, "probe: {seed: 4294967296}", 12, "less-than", "0 to 4,294,967,295"),
        (LAST, "evaluate: {samples: 4, pass_at: [2, 8]}", 12, "too-few-samples", "samples: 8"),
        (
            LAST,
            "evaluate: {ood: [arithmetic], ood_samples: 4, samples: 2, pass_at: [4, 8]}",
            12,
            "too-few-samples",
            "experiments.q.evaluate.pass_at.1: pass@8 needs 8",
        ),
        *(
            (POLICY, f"{POLICY}\n      seed: [{value}]", 10, code, "0 to 4,294,967,295")
            for value, code in (
                ("-1", "greater-than-equal"),
                ("4294967296", "less-than"),
            )
        ),
        (POLICY, f"{POLICY}\n      seed: {[*range(1001)]}", 10, "too-long", "1 to 1,000"),
        (
            POLICY,
            f"{POLICY}\n      seed: {[*range(1000)]}\n      probe_seed: {[*range(6)]}",
            6,
            "too-many-cells",
            "12,000",
        ),
        *(("  q:", f"  {name}:", 5, "invalid-name", "80") for name in INVALID_NAMES),
        *(
            ("tiny: {emb", f"{name}: {{emb", 3, "invalid-name", f"models.{name}: ")
            for name in ("a b", "a:b")
        ),
        ("experiments:", "datasets: {a@b: {task: gsm8k}}\nexperiments:", 4, "invalid-name", "a@b"),
        ("experiments:", "policies: {a$: {policy: hard}}\nexperiments:", 4, "invalid-name", "a$"),
        (
            "experiments:\n",
            DATASET.replace("prompt: PROMPT", "options: {marking: lenient}"),
            5,
            "marking-of-a-dataset",
            "experiment",
        ),
        (
            "experiments:\n",
            DATASET.replace("prompt: PROMPT", "options: {prompt: {}}"),
            5,
            "prompt-in-options",
            "next to options",
        ),
    ],
)
def test_each_error_names_its_line_and_a_fix(
    tmp_path: Path, old: str, new: str, line: int, code: str, value: str
) -> None:
    error = refusal(tmp_path, old, new)
    assert error.code == code
    assert f"experiments.yaml:{line}: " in str(error) and value in str(error)
    assert problems(str(error)) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("frobnicate: 1", "GRPOConfig"),
        ("learning_rat: 1", "'learning_rate'"),
        ("run_name: x", "Decile"),
        ("seed: 3", "grid.seed"),
        ("hub_token: x", "HF_TOKEN"),
        ("output_dir: here", "(set storage)"),
        ("num_train_epochs: 3", "max_steps"),
        ("num_generations: 1", "least 2"),
        ("num_generations: null", "8"),
        ("learning_rate: fast", "number, such as 1e-05"),
        ("learning_rate: 0", "above 0"),
        ("max_steps: 2.5", "whole number"),
        ("max_steps: 0", "least 1"),
        (f"max_steps: {'9' * 500}", "10,000,000"),
        ("gradient_accumulation_steps: 0", "least 1"),
        ("warmup_steps: -3", "least 0"),
        ("warmup_steps: null", "number"),
        ("temperature: -1", "above 0"),
        ("top_p: 1.5", "most 1"),
        ("adam_beta2: 1", "below 1"),
        ("beta: .nan", "finite"),
        ("delta: 010", "'010': write a number"),
        ("generation_kwargs: {min_new: [1, .nan]}", "finite"),
        ("generation_kwargs: 3", "mapping or a string"),
        ("loss_type: drgrpo", "'dr_grpo'?"),
        ("scale_rewards: nne", "batch, group, none; did you mean 'none'?"),
        ("lr_scheduler_type: cosin", "'cosine'?"),
        ("reward_weights: [1, 2]", "one weight"),
        ("shuffle_dataset: false", "true"),
        ("bf16: 'true'", "true or false"),
        ("ddp_backend: 3", "string"),
        ("pad_to_multiple_of: true", "number or a string"),
        ("label_names: prompt", "list of strings"),
        ("liger_kernel_config: {rope: 1}", "true or false"),
        ("vllm_mode: sever", "'server'?"),
        ("vllm_model_impl: transformer", "'transformers'?"),
        ("vllm_importance_sampling_mode: token", "sequence_mask"),
        ("vllm_gpu_memory_utilization: 0", "above 0"),
        ("vllm_gpu_memory_utilization: 1.2", "most 1"),
        ("vllm_tensor_parallel_size: 0", "least 1"),
        ("vllm_max_model_length: 0", "least 1"),
        ("vllm_server_port: 70000", "65,535"),
        ("model_init_kwargs: {trust_remote_code: true}", "attn_implementation"),
    ],
)
def test_values_that_trl_would_refuse_after_the_probe(
    tmp_path: Path, setting: str, value: str
) -> None:
    old = "num_generations: 8" if setting.startswith("num_generations:") else RATE
    place = f"11: experiments.q.grpo.{setting.partition(':')[0]}"
    check_library_setting(refusal(tmp_path, old, setting), place, value)


def check_library_setting(error: UserError, place: str, value: str) -> None:
    """The refusal is at this place, and what to write instead holds the value."""
    assert error.code == "invalid-library-setting"
    _, found, text = str(error).partition(f"experiments.yaml:{place}")
    assert found and value in text
    assert problems(str(error)) == []


OVERRIDES = {  # arguments of `generate` -> what to write instead
    "temperature": "grpo.temperature",
    "top_p": "grpo.top_p",
    "max_new_tokens": "grpo.max_completion_length",
    "max_length": "grpo.max_completion_length",
    "do_sample": "remove do_sample",
    "eos_token_id": "remove eos_token_id",
    "n": "grpo.num_generations",
    "num_return_sequences": "grpo.num_generations",
    "stop_strings": "probe.stop",
    "seed": "grid.seed",
}


def test_generation_kwargs_do_not_override_settings(tmp_path: Path) -> None:
    refused = {}
    for name in OVERRIDES:
        for form in (f"{{{name}: 1}}", f"'{{\"{name}\": 1}}'"):
            error = refusal(tmp_path, RATE, f"generation_kwargs: {form}")
            assert (error.code, problems(str(error))) == ("overrides-own-setting", []), error
            assert ":11: experiments.q.grpo.generation_kwargs: " in str(error)
            refused[name] = str(error)
    wrong = {name: text for name, text in refused.items() if OVERRIDES[name] not in text}
    assert not wrong
    assert refusal(tmp_path, RATE, "generation_kwargs: '[1]'").code == "overrides-own-setting"
    for free in ("{min_new_tokens: 2}", "'{\"min_new_tokens\": 2}'", "{}", "null"):
        assert loaded(tmp_path, RATE, f"generation_kwargs: {free}")


def test_settings_whose_package_is_missing_are_refused_before_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter(()))
    file = tmp_path / "experiments.yaml"
    for setting, value in (("use_liger_kernel", "true"), ("deepspeed", "{zero: 1}")):
        file.write_text(GOOD.replace(RATE, f"{setting}: {value}"))
        config = load_config(file)
        assert any(f"grpo.{setting}: " in note for note in config.warnings("q")), setting
        with pytest.raises(UserError, match=f":11: experiments.q.grpo.{setting}: ") as caught:
            config.check_packages("q")
        assert caught.value.code == "package-not-installed" and problems(str(caught.value)) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("rank: 8", "PEFT's LoraConfig"),
        ("lora_alhpa: 8", "'lora_alpha'"),
        ("inference_mode: true", "Decile"),
        ("r: eight", "number, such as 32"),
        ("r: 0", "least 1"),
        ("r: 1000000", "10,000"),
        ("lora_dropout: 1", "below 1"),
        ("bias: some", "none, all, lora_only"),
        ("init_lora_weights: pisa", "'pissa'?"),
        ("use_dora: maybe", "true or false"),
        ("target_modules: [1]", "strings"),
        ("layer_replication: [[0, x]]", "list"),
        ("trainable_token_indices: {embed: [x]}", "mapping"),
    ],
)
def test_values_that_peft_would_refuse_after_the_probe(
    tmp_path: Path, setting: str, value: str
) -> None:
    place = f"12: experiments.q.lora.{setting.partition(':')[0]}"
    check_library_setting(refusal(tmp_path, "r: 8", setting), place, value)


@pytest.mark.parametrize(
    "setting",
    [
        *("loss_type: grpo", "scale_rewards: batch", "lr_scheduler_type: cosine", "optim: sgd"),
        *("beta: 0.04", "warmup_steps: 0.1", "reward_weights: [2.0]", "use_vllm: false"),
        *("top_p: 1", "delta: null", "pad_to_multiple_of: 8", "optim: paged_adamw_8bit"),
        *("bf16: null", "fsdp: true", "shuffle_dataset: null", "include_for_metrics: [loss]"),
    ],
)
def test_values_that_trl_accepts_are_accepted(tmp_path: Path, setting: str) -> None:
    name = setting.partition(":")[0]
    assert name in loaded(tmp_path, "learning_rate: 1e-4", setting).grpo


@pytest.mark.parametrize(
    "setting", ["bias: all", "init_lora_weights: pissa_niter_4", "layer_replication: [[0, 2]]"]
)
def test_values_that_peft_accepts_are_accepted(tmp_path: Path, setting: str) -> None:
    assert setting.partition(":")[0] in loaded(tmp_path, "r: 8", setting).lora


def test_a_valid_setting_that_is_probably_a_slip_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the tests run, a storage may be
    file = written(tmp_path, GOOD.replace("learning_rate: 1e-4", "learning_rate: 10, beta: 1"))
    [line] = load_config(file).warnings("q")
    assert line.startswith(
        f"warning: {file}:11: experiments.q.grpo.learning_rate: learning_rate is 10"
    )
    assert "0.01" in line
    axis = "policy: [hard, random]\n      grpo.temperature: [1.0, 3.0]"
    file = written(tmp_path, GOOD.replace("policy: [hard, random]", axis))
    [line] = load_config(file).warnings("q")
    assert line.startswith(f"warning: {file}:10: experiments.q.grid.grpo.temperature.1: temp")
    axis = "policy: [hard, random]\n      false_positive_rate: [0.4, 0.6]"
    text = GOOD.replace("policy: [hard, random]", axis)
    file = written(
        tmp_path, text.replace("    budget:", "    false_negative_rate: 0.5\n    budget:")
    )
    [line] = load_config(file).warnings("q")
    assert line.startswith(f"warning: {file}:10: experiments.q.grid.false_positive_rate.1: ")
    assert "0.6" in line and "0.5" in line


@pytest.mark.parametrize("section", ["grpo", "lora"])
def test_the_defaults_of_the_libraries_have_the_types_that_they_declare(section: str) -> None:
    annotations = library_settings.declared(section)
    defaults: dict[str, Any] = {}
    for package, file, name in library_settings._CLASSES[section]:
        for node in library_settings._class_body(library_settings._path(package, file), name):
            if isinstance(node, ast.AnnAssign):
                values = [node.value, *(k.value for k in getattr(node.value, "keywords", ()))]
                for value in values[:2]:  # field(default=…, …)
                    if isinstance(value, ast.Constant):
                        defaults[ast.unparse(node.target)] = value.value
    assert len(defaults) > 20
    assert not {
        name: value
        for name, value in defaults.items()
        if library_settings.expected_type(annotations[name], value)
    }


def test_a_missing_file_and_a_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="not a mapping"):
        load_config(written(tmp_path, yaml.safe_dump([1])))


@pytest.mark.parametrize("alias", ["[*{0}, *{0}]", "{{<<: [*{0}, *{0}]}}"])
def test_nested_aliases_that_expand_without_end_are_refused(tmp_path: Path, alias: str) -> None:
    bomb = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {alias.format(f'a{i - 1}')}" for i in range(1, 40))]
    with pytest.raises(UserError, match=r"yaml:\d+: .*100,000"):
        load(written(tmp_path, "\n".join(bomb)))


def test_keys_that_are_merged_again_and_again_are_counted(tmp_path: Path) -> None:
    keys = ", ".join(f"k{i}: 1" for i in range(400))
    text = f"a: &a {{{keys}}}\nb: {{<<: [{', '.join(['*a'] * 400)}]}}"
    with pytest.raises(UserError, match="100,000"):
        load(written(tmp_path, text))


def test_an_alias_bomb_is_refused_after_a_bounded_number_of_steps(tmp_path: Path) -> None:
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 13)]
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with pytest.raises(UserError, match="100,000"):
            load_config(written(tmp_path, "\n".join(bomb)))
    finally:
        sys.setprofile(None)
    assert calls < 6 * MAX_VALUES


@pytest.mark.parametrize(
    "text",
    [
        *(f"a: {'[' * depth}{']' * depth}" for depth in (100, 5_000)),
        *("[" * 100_000, "{a: " * 100_000, "- " * 500 + "x"),
        "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 150)),
        "a0: &a0 {}\n" + "\n".join(f"a{i}: &a{i} {{<<: *a{i - 1}}}" for i in range(1, 150)),
    ],
    ids=["100", "5000", "open lists", "open mappings", "blocks", "aliases", "merges"],
)
def test_deep_nesting_is_named_as_such(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"yaml:\d+: .* 100 levels"):
        load(written(tmp_path, text))
    if "&" not in text:
        with pytest.raises(UserError, match="--option x: .* 100 levels"):
            named_values([f"x={text}"])


def test_an_unknown_experiment_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one of q"):
        load_config(written(tmp_path, GOOD)).experiment("p")


def test_an_item_of_a_block_list_is_found_on_its_own_line(tmp_path: Path) -> None:
    listed = "policy:\n        - hard\n        - random\n        - easiest"
    message = str(refusal(tmp_path, "policy: [hard, random]", listed))
    assert "experiments.yaml:12: experiments.q.grid.policy.2: " in message


def test_a_group_is_divided_over_accumulated_steps(tmp_path: Path) -> None:
    experiment = loaded(tmp_path, "size: 16", "size: 12, gradient_accumulation_steps: 2")
    assert experiment.batch.prompts_per_update == 3


@settings(max_examples=50)
@given(group=st.integers(2, 12), batch=st.integers(1, 24), workers=st.integers(1, 3))
def test_a_batch_fits_exactly_when_it_holds_whole_groups(
    group: int, batch: int, workers: int
) -> None:
    grpo = {
        "num_generations": group,
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": 1,
    }
    problem = GrpoBatch.of(GrpoSettings.of(GRPO_DEFAULTS | grpo), workers).group_problem()
    assert (problem is None) == (batch * workers % group == 0)


@settings(max_examples=50)
@example(percent=29, pool=100)
@given(percent=st.integers(1, 100), pool=st.integers(1, 100_000))
def test_a_share_is_floored_without_rounding_noise(percent: int, pool: int) -> None:
    grid = {"model": ["m"], "dataset": ["d"], "policy": ["hard"]}
    experiment = Experiment.model_validate({"grid": grid, "budget": percent / 100})
    assert experiment.subset_size(pool) == percent * pool // 100


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "1.0e-4", "0.0001", "1.e-4", "10e-5"])
def test_every_spelling_of_a_small_number_is_a_number(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path, "1e-4", text).grpo["learning_rate"] == pytest.approx(1e-4)


def test_pass_at_needs_as_many_samples_only_where_it_is_written(tmp_path: Path) -> None:
    for evaluate in (
        "{samples: 1}",
        "{samples: 8, pass_at: [8]}",
        "{samples: 2, ood: [arithmetic], ood_samples: 8, pass_at: [2, 8]}",
    ):
        assert loaded(tmp_path, "lora: {r: 8}", f"evaluate: {evaluate}")


def test_common_forms_of_names_are_valid(tmp_path: Path) -> None:
    for name in ("q-1", "qwen3_4b", "a.b", "lr1e-4+beta", "größe"):
        assert load_config(written(tmp_path, GOOD.replace("  q:", f"  {name}:"))).experiment(name)


def test_an_option_on_the_command_line_is_read_like_the_file() -> None:
    assert named_values(["low=1e-1", "levels=1-3"]) == {"low": 0.1, "levels": "1-3"}


def test_an_option_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        named_values(["low=0.1", "name=a\udcffb"])
    assert "--option name: " in str(caught.value) and "U+DCFF" in str(caught.value)


def test_text_that_only_looks_like_a_number_or_a_merge_stays_text(tmp_path: Path) -> None:
    for word in ("1e", "e4", "1e-", "1e4x", "<<", "9" * (MAX_DIGITS + 1)):
        assert loaded(tmp_path, "lora: {r: 8}", f"about: {word}").about == word


def test_a_budget_of_1_and_of_100_percent_differ(tmp_path: Path) -> None:
    whole, single = (loaded(tmp_path, "0.1", budget) for budget in ("1.0", "1"))
    assert (whole.subset_size(800), single.subset_size(800)) == (800, 1)


def test_an_evaluation_uses_the_probes_completion_length_unless_it_sets_its_own(
    tmp_path: Path,
) -> None:
    probe = "probe: {max_completion_length: 77}"
    experiment = loaded(tmp_path, "lora: {r: 8}", probe)
    assert experiment.evaluate.as_probe(experiment.probe).max_completion_length == 77
    own = f"{probe}\n    evaluate: {{max_completion_length: 9}}"
    experiment = loaded(tmp_path, "lora: {r: 8}", own)
    assert experiment.evaluate.as_probe(experiment.probe).max_completion_length == 9


@pytest.mark.parametrize(
    ("prompt", "values"),
    [
        ("{preset: papper}", "'papper': write one of plain, paper"),
        ("{presets: paper}", "'presets': it takes preset, system, few_shot"),
        ("{system: [a]}", "['a']"),
        ("{few_shot: 3}", "{question"),
        ("{few_shot: [{question: a}]}", "{'question': 'a'}"),
    ],
)
def test_an_invalid_wording_is_refused_with_its_line(
    tmp_path: Path, prompt: str, values: str
) -> None:
    message = str(refusal(tmp_path, "experiments:\n", DATASET.replace("PROMPT", prompt)))
    assert "experiments.yaml:5: datasets.mine.prompt: " in message and values in message


def test_stop_strings_serve_probe_and_evaluation(tmp_path: Path) -> None:
    text = GOOD.replace("budget: 0.1", "probe: {stop: [Q]}\n    budget: 0.1")
    experiment = load_config(written(tmp_path, text)).experiment("q")
    assert experiment.probe.sampling().stop == ("Q",)
    assert experiment.evaluate.as_probe(experiment.probe).sampling().stop == ("Q",)


def test_an_error_in_a_merged_block_is_reported_at_its_own_line(tmp_path: Path) -> None:
    text = GOOD.replace("  q:\n", "  q: &q\n") + "  r: {<<: *q, lora: {r: 4}}\n"
    assert load_config(written(tmp_path, text)).experiment("r").full_lora()["r"] == 4
    for old, new, line in (
        ("budget: 0.1", "budget: 0", 10),  # both contain it: the first is reported
        ("lora: {r: 4}", "lora: {r: 0}", 13),  # overrides a merged value
        ("lora: {r: 4}", "budget: 2.5, lora: {r: 4}", 13),
    ):
        with pytest.raises(UserError, match=rf"experiments\.yaml:{line}: experiments\.[qr]\."):
            load_config(written(tmp_path, text.replace(old, new)))


def test_merged_keys_have_the_lines_of_what_was_merged(tmp_path: Path) -> None:
    text = "a: &a {x: 1,\n  y: [1,\n  2]}\nb: &b\n  y: 3\nc:\n  <<: [*b, *a]\n  z: 4\n"
    content, lines = load(written(tmp_path, text))
    assert content["c"] == {"x": 1, "y": 3, "z": 4}
    assert {key: line for key, line in lines.items() if key[:1] == ("c",)} == {
        ("c",): 6,
        ("c", "x"): 1,
        ("c", "y"): 5,
        ("c", "z"): 8,
    }
