"""Private parts of libraries: used in one module each, and as the installed versions have them.

A failure after an upgrade names what changed: read the library's new code, adapt the module, and
move the pin in pyproject.toml.
"""

import ast
import importlib
import inspect
import json
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
import torch
from import_graph import ROOT, TOPS
from packaging.requirements import Requirement
from ray._private.state import GlobalState, state
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator
from ray.data._internal.execution.operators.map_operator import MapOperator
from ray.tune.experiment import Trial
from transformers import (
    AttentionInterface,
    DynamicCache,
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
)
from transformers.cache_utils import DynamicLayer
from trl import GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import RepeatSampler, add_fused_lm_head

from cluster import session
from cluster.ray_internals import forget_metrics
from orchestrator.tracking import mlflow_internals
from orchestrator.training.trl_internals import (
    BROUGHT,
    BY_TOKENS,
    ChoosingTrainer,
    LiveGroupsTrainer,
    SelectedTrainer,
)

MODULES = {
    "ray": "cluster/ray_internals.py",
    "transformers": "orchestrator/sampling/transformers_internals.py",
    "trl": "orchestrator/training/trl_internals.py",
    "mlflow": "orchestrator/tracking/mlflow_internals.py",
}
PUBLIC_UNDERSCORES = {
    "_asdict",
    "_replace",
    "_fields",
    "_make",
    "_ActionsContainer",
    "_exit",
}  # of the standard library
# An object of the same class.
OTHER_PRIVATE = {
    ("orchestrator/config/experiment.py", "_variants"),
    ("policies/online.py", "_closed_groups"),
    ("policies/online.py", "_drawn"),
    ("policies/online.py", "_place"),
    ("policies/online.py", "_refreshed"),
    # Python's own, in an interpreter that must import and close little.
    ("orchestrator/optional/code/sandbox_guest.py", "_collections_abc"),
    ("orchestrator/optional/code/sandbox_guest.py", "_json"),
    ("orchestrator/optional/code/sandbox_guest.py", "_shutdown"),
    ("orchestrator/optional/code/sandbox_guest.py", "_thread"),
}


def private_uses(file: Path) -> set[str]:
    """Names of private modules that a file imports, and of private attributes of other objects."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            modules = [alias.name for alias in node.names]
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            parts = {m: m.split(".") for m in modules if not m.startswith("__")}
            names |= {m for m in parts if any(part.startswith("_") for part in parts[m])}
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not own and not node.attr.startswith("__"):
                names.add(node.attr)
    return names - PUBLIC_UNDERSCORES


def test_private_parts_are_used_in_one_module_of_each_library() -> None:
    uses = {
        (str(file.relative_to(ROOT)), name)
        for top in TOPS
        for file in (ROOT / top).rglob("*.py")
        for name in private_uses(file)
    }
    assert {use for use in uses if use[0] not in MODULES.values()} == OTHER_PRIVATE


@pytest.mark.parametrize("library", MODULES)
def test_a_library_with_used_private_parts_is_pinned_to_the_tested_minor_version(
    library: str,
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pinned = map(Requirement, [*extras["sweep"], *extras["trl"]])
    [pin] = [requirement for requirement in pinned if requirement.name == library]
    major, minor, *_ = map(int, version(library).split("."))
    assert pin.specifier.contains(version(library))
    assert pin.specifier.contains(f"{major}.{minor}.999")
    assert not pin.specifier.contains(f"{major}.{minor + 1}.0")


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("owner", "name", "names"),
    [
        (DynamicLayer, "update", ["self", "key_states", "value_states", "args", "kwargs"]),
        (DynamicLayer, "lazy_initialization", ["self", "key_states", "value_states"]),
        (DynamicLayer, "get_seq_length", ["self"]),
        (DynamicLayer, "reorder_cache", ["self", "beam_idx"]),
        (RayActorManager, "_actor_task_failed", ["self", "tracked_actor_task", "exception"]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_private_methods_take_the_parameters_that_are_passed(
    owner: type, name: str, names: list[str]
) -> None:
    assert parameters(getattr(owner, name)) == names


def test_trl_overrides_have_the_signatures_of_the_originals() -> None:
    private = [
        (owner, name)
        for owner in (ChoosingTrainer, SelectedTrainer, LiveGroupsTrainer)
        for name in vars(owner)
        if hasattr(GRPOTrainer, name) and name.startswith("_") and not name.startswith("__")
    ]
    assert len(private) == 12
    for owner, name in private:
        ours = parameters(getattr(owner, name))
        trls = parameters(getattr(GRPOTrainer, name))
        if "of_images" in ours:  # all further ones, passed on
            assert ours[:-1] == trls[: len(ours) - 1] and trls[len(ours) - 1] == "pixel_values"
        else:
            assert ours == trls
    added = {"recorder", "max_batch", "without_dead", "independent_rows"}
    added |= {"chooser", "rollouts", "drawn_now", "_number", "drawn", "live_groups", "before"}
    added |= {"selector", "adopt", "check", "mark", "sizes", "_advantages"}
    assert not added & set(dir(GRPOTrainer))


def test_trl_takes_drawn_rollouts_as_its_own() -> None:
    """The values that `_generate` returns, and columns of a row as arguments of a reward."""
    generate = inspect.getsource(GRPOTrainer._generate)
    values = "prompt_ids, completion_ids, tool_mask, completions, logprobs, extra_fields, images"
    assert f"return {values}, tool_images" in generate
    assert "images = None" in inspect.getsource(GRPOTrainer._tokenize_prompts)
    assert "tool_images = []" in generate and "extra_fields = {}" in generate
    rewards = inspect.getsource(GRPOTrainer._calculate_rewards)
    assert "reward_kwargs = {key: [example[key] for example in inputs] for key in keys}" in rewards
    assert "**reward_kwargs" in rewards and '"reward"' not in rewards


def test_trl_computes_the_advantages_that_unequal_groups_replace() -> None:
    """From the mean and the deviation of each group, with the same small number added."""
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    for part in (
        "torch.nanmean(rewards.view(-1, num_generations), dim=1)",
        "std_rewards = nanstd(rewards.view(-1, num_generations), dim=1)",
        'elif self.scale_rewards == "batch":',
        "advantages = rewards - mean_grouped_rewards",
        "advantages = advantages / (std_rewards + 1e-4)",
        '"advantages": advantages,',
        'self._metrics[mode]["frac_reward_zero_std"].append(is_std_zero.float().mean().item())',
        'self._logs["advantages"].extend(all_process_advantages.tolist())',
    ):
        assert part in source, part
    whole = inspect.getsource(GRPOTrainer)
    assert '"advantages": deque(maxlen=args.generation_batch_size)' in whole
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    assert "num_generations" not in loss, "the loss knows rows, and no groups"


def test_trl_reads_and_writes_checkpoints_where_the_selector_adds_its_state() -> None:
    """The state is written before the trainer's, and read when the trainer's update is known."""
    saving = inspect.getsource(Trainer._save_checkpoint)
    assert 'checkpoint_folder = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"' in saving
    assert "run_dir = self._get_output_dir(trial=trial)" in saving
    loop = inspect.getsource(Trainer._inner_training_loop)
    assert loop.index("self._init_training_state(") < loop.index("self._prepare_for_training(")
    assert loop.index("self._prepare_for_training(") < loop.index("on_train_begin(")
    loading = inspect.getsource(Trainer._prepare_for_training)
    assert "self._load_optimizer_and_scheduler(resume_from_checkpoint)" in loading
    rewards = inspect.getsource(GRPOTrainer._calculate_rewards)
    assert "rewards_per_func = gather(rewards_per_func)\n        return rewards_per_func" in rewards
    source = inspect.getsource(GRPOTrainer)
    for name in ("reward_func_names", "reward_weights", "rollout_func", "tools"):
        assert f"self.{name} = " in source, name
    for name in ("environment_factories", "_pending_extra_logs"):
        assert f"self.{name} = " in source, name
    assert BROUGHT not in source


def test_trl_has_the_attributes_and_batch_keys_that_are_read() -> None:
    source = inspect.getsource(GRPOTrainer)
    for name in (
        *("beta", "loss_type", "use_vllm", "num_generations", "top_entropy_quantile"),
        *("_entropy_bonus_enabled", "aux_loss_enabled", "_buffered_inputs", "_metrics", "_step"),
        "pad_to_multiple_of",
    ):
        assert f"self.{name} = " in source, name
    assert "self.is_fsdp_enabled" in source
    for key in (
        *("completion_mask", "tool_mask", "advantages", "num_items_in_batch"),
        *("prompt_ids", "prompt_mask"),
    ):
        assert f'"{key}"' in source, key
    for key in ("row", "group", "kept"):  # Decile adds these
        assert f'inputs["{key}"]' not in source and f'output["{key}"]' not in source
    assert parameters(GRPOTrainer._compute_loss)[2] == "inputs"
    for loss in BY_TOKENS:
        assert f'"{loss}"' in source, loss
    drawing = inspect.getsource(GRPOTrainer._generate_single_turn)
    assert "return completion_ids, logprobs" in drawing
    # Guards compare the log-probabilities of what was drawn, and restore what vLLM gets merged.
    assert 'output["sampling_per_token_logps"] = ' in source
    assert '"sampling/sampling_logp_difference/mean"' in source
    assert "self.vllm_generation.sync_weights()" in drawing
    assert "model.unmerge_adapter()" in inspect.getsource(VLLMGeneration)
    order = RepeatSampler(range(5), mini_repeat_count=2, seed=3)
    assert isinstance(order.generator, torch.Generator)
    assert (order.seed, order.num_samples) == (3, 5)


def test_trls_fused_head_scores_the_states_that_the_body_returns() -> None:
    """Which is why a hook on the body can leave out the states that nothing is predicted from."""
    source = inspect.getsource(add_fused_lm_head)
    assert 'backbone_attr = "base_model"' in source
    assert (
        "hidden_states = backbone_outputs.last_hidden_state\n            labels = shift" in source
    )
    assert "sdpa" in AttentionInterface() and "packed_rows" in parameters(
        AttentionInterface()["sdpa"]
    )


def test_trl_sends_weights_to_a_vllm_server_from_gpus_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which is why experiments.yaml refuses it without GPUs."""
    from trl.generation import vllm_client

    monkeypatch.setattr(vllm_client, "get_ip", lambda: "127.0.0.1", raising=False)
    client: Any = object.__new__(vllm_client.VLLMClient)
    client.group_port = 1
    client.get_server_info = lambda: {"weight_transfer_config": {"backend": "nccl"}}
    client.get_world_size = lambda: 1
    with pytest.raises(NotImplementedError, match="needs a CUDA device, got 'cpu'"):
        client.init_communicator(torch.device("cpu"))


@pytest.mark.parametrize(
    ("lora", "tied", "same"),
    [
        ({}, True, True),
        ({"use_dora": True, "use_rslora": True, "rank_pattern": {"q_proj": 2}}, True, True),
        ({"target_modules": ["q_proj"], "target_parameters": ["down_proj.weight"]}, True, True),
        ({"modules_to_save": ["lm_head"]}, False, True),
        ({"modules_to_save": ["lm_head"]}, True, False),
        ({"target_modules": ["q_proj", "embed_tokens"]}, True, False),
        ({"layer_replication": [[0, 2], [1, 2]]}, False, False),
        ({"trainable_token_indices": [1, 2]}, False, False),
    ],
)
def test_what_trl_sends_to_vllm_is_the_adapted_model_with_some_adapters_only(
    lora: dict[str, Any], tied: bool, same: bool
) -> None:
    """Which is why config/vllm_rollouts.py refuses the others. vLLM has one tied embedding."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config, ids = small(), torch.arange(1, 9)[None]
    config.update({"vocab_size": 16, "intermediate_size": 16, "tie_word_embeddings": tied})
    drawn = AutoModelForCausalLM.from_config(config)  # in place of vLLM's
    lora = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **lora}
    model: Any = get_peft_model(AutoModelForCausalLM.from_config(config), LoraConfig(**lora))
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * parameter.requires_grad
    generation: Any = object.__new__(VLLMGeneration)
    generation.model = model.eval()
    generation._dist = SimpleNamespace(is_fsdp=False, gather_params=lambda _: nullcontext())
    weights = {name: tensor.clone() for name, tensor in generation._iter_named_params()}
    if tied:
        weights.pop("lm_head.weight", None)
    drawn.load_state_dict(weights, strict=False)
    with torch.no_grad():
        assert torch.allclose(drawn(ids).logits, model(ids).logits, atol=1e-3) == same


def test_transformers_cache_layers_have_the_attributes_that_are_used() -> None:
    layer, states = DynamicLayer(), torch.zeros(1, 1, 2, 4)
    assert layer.is_initialized is False
    layer.update(states, states)
    assert layer.is_initialized is True and layer.get_seq_length() == 2
    assert layer.keys.shape == layer.values.shape == (1, 1, 2, 4)
    assert "config" in parameters(DynamicCache.__init__)
    assert all(type(each) is DynamicLayer for each in DynamicCache(config=small()).layers)


def small() -> PretrainedConfig:
    """A config of two plain layers."""
    from transformers import LlamaConfig

    return LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2)


def test_transformers_models_choose_attention_by_a_private_setting() -> None:
    config = small()
    config._attn_implementation = "sdpa"
    assert config._attn_implementation == "sdpa"
    assert config.get_text_config(decoder=True) is config
    assert PreTrainedModel._supports_attention_backend is False
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    assert llama.LlamaForCausalLM._supports_attention_backend is True
    forward = inspect.getsource(llama.LlamaAttention.forward)
    assert "self.config._attn_implementation" in forward, "read in every forward"


def test_ray_keeps_its_global_state_where_it_is_read() -> None:
    assert isinstance(state, GlobalState)


def test_ray_data_gives_its_actors_the_attributes_that_are_replaced() -> None:
    source = inspect.getsource(ActorPoolMapOperator._start_actor)
    for name in ("_data_context_ref", "_map_transformer_ref"):
        assert f"=self.{name}," in source
        assert isinstance(inspect.getattr_static(MapOperator, name), cached_property)
    assert "self._map_transformer = " in inspect.getsource(MapOperator.__init__)
    assert isinstance(inspect.getattr_static(MapOperator, "data_context"), property)


def test_ray_prints_a_dead_raylets_log_by_the_function_that_is_replaced() -> None:
    from ray._private import process_watcher, worker

    assert "print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)
    assert '"lines": [error_message]' in inspect.getsource(worker.listen_error_messages)
    source = inspect.getsource(process_watcher.report_raylet_error_logs)
    assert 'msg = "Raylet is terminated. "' in source


def test_ray_train_calls_a_groups_callbacks_with_what_is_read() -> None:
    from ray.train.v2._internal.execution.callback import WorkerGroupCallback
    from ray.train.v2._internal.execution.worker_group.poll import WorkerStatus
    from ray.train.v2._internal.execution.worker_group.worker import ActorMetadata, Worker

    hooks = {"after_worker_group_start": "worker_group"}
    hooks |= {"after_worker_group_poll_status": "worker_group_status"}
    for hook, argument in hooks.items():
        assert parameters(getattr(WorkerGroupCallback, hook)) == ["self", argument]
    fields = (WorkerStatus, "training_report"), (Worker, "distributed_context")
    fields += (Worker, "metadata"), (ActorMetadata, "node_ip"), (ActorMetadata, "pid")
    assert all(name in owner.__dataclass_fields__ for owner, name in fields)
    assert parameters(Worker.execute_async)[:2] == ["self", "fn"]


def test_ray_starts_its_processes_by_the_methods_that_are_replaced() -> None:
    from ray import _raylet
    from ray._private import node, parameter, ray_constants, services, worker

    assert parameters(node.Node.start_api_server) == [
        "self",
        "include_dashboard",
        "raise_on_failure",
    ]
    assert parameters(node.Node.start_ray_processes) == ["self"]
    assert parameters(services.get_node) == ["gcs_address", "node_id"]
    interpreter = services._build_python_executable_command_memory_profileable
    assert parameters(interpreter) == ["component", "session_dir", "unbuffered"]
    assert ray_constants.PROCESS_TYPE_DASHBOARD_AGENT == "dashboard_agent"
    ports = ("METRICS_AGENT", "METRICS_EXPORT", "DASHBOARD_AGENT_LISTEN")
    assert all(getattr(_raylet, f"{port}_PORT_NAME") for port in ports)
    assert "(unicode dir: str, unicode node_id: str, unicode port_name: str, int port: int)" in (
        inspect.getdoc(_raylet.persist_port) or ""  # type: ignore[attr-defined]
    ).replace("persist_port", "")
    assert hasattr(_raylet.AuthenticationTokenLoader.instance(), "reset_cache")  # type: ignore[attr-defined]
    settings = parameters(parameter.RayParams)
    assert {"no_monitor", "include_log_monitor", "runtime_env_agent_port"} <= {*settings}
    assert "ray._private.node.Node(" in inspect.getsource(worker)
    source = inspect.getsource(node.Node)
    for used in ("self.start_api_server(", "self.start_raylet(", "self.start_ray_processes("):
        assert used in source
    assert "session_{date_str}_{os.getpid()}" in source
    agent = Path(node.__file__).with_name("runtime_env") / "agent" / "main.py"
    assert "socket.SO_REUSEADDR" in agent.read_text()


def test_ray_reads_the_settings_of_a_session() -> None:
    from ray import _raylet
    from ray._private import node

    read = Path(_raylet.__file__).read_bytes() + Path(node.__file__).read_bytes()
    for name in session.ENVIRONMENT | session.LOCAL_ENVIRONMENT:
        if name.removeprefix("RAY_").islower():  # Ray's Python has the others, in many modules
            assert name.encode() in read, name


def test_ray_has_the_parts_that_the_watchdog_asks() -> None:
    from ray._private.node import Node
    from ray._private.ray_constants import PROCESS_TYPE_GCS_SERVER, PROCESS_TYPE_RAYLET
    from ray._private.services import canonicalize_bootstrap_address
    from ray._raylet import InnerGcsClient, NodeID

    assert parameters(canonicalize_bootstrap_address)[0] == "addr"
    assert hasattr(InnerGcsClient, "check_alive")
    for call in (
        "put(self, string key, string value, bool overwrite=False, namespace=None, timeout=None)",
        "keys(self, string prefix, namespace=None, timeout=None)",
        "multi_get(self, list keys: List[bytes], namespace=None, timeout=None)",
        "del(self, string key, bool del_by_prefix, namespace=None, timeout=None)",
    ):
        name = f"internal_kv_{call.partition('(')[0]}"
        assert f"internal_kv_{call}" in (getattr(InnerGcsClient, name).__doc__ or "")
    assert hasattr(NodeID, "from_hex")
    for name in ("raylet_socket_name", "gcs_address", "get_logs_dir_path"):
        assert hasattr(Node, name)
    assert "self.all_processes" in inspect.getsource(Node)
    assert {PROCESS_TYPE_RAYLET, PROCESS_TYPE_GCS_SERVER} == {"raylet", "gcs_server"}


def test_tune_keeps_a_trials_metrics_where_they_are_dropped() -> None:
    trial = Trial("trainable", stub=True)
    trial.update_last_result({"report": "{}", "training_iteration": 1, "config": {"cell": "{}"}})
    metadata = trial.run_metadata
    assert "training_iteration" in metadata.metric_analysis
    assert "training_iteration" in metadata.metric_n_steps
    forget_metrics(trial)
    assert (metadata.metric_analysis, metadata.metric_n_steps) == ({}, {})
    assert "config" not in metadata.last_result and "report" in metadata.last_result
    forget_metrics(Trial("trainable", stub=True))  # failed before its first report


def test_the_mlflow_ui_knows_the_tags_and_settings_that_are_written() -> None:
    build = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"
    ui = "\n".join(file.read_text() for file in build.glob("*.js"))
    tags = mlflow_internals.experiment_tags({}, 0)
    names = {key.removesuffix(f".{view}") for key in tags for view in mlflow_internals.views()}
    names = {name for name in names if not name.endswith(tuple(mlflow_internals.views()))}
    names |= {mlflow_internals.RUN_COLOUR, *mlflow_internals.KIND.values()}
    for view in (json.loads(value) for key, value in tags.items() if "View" in key):
        names |= {*view, *json.loads(view["state"])}
    page = mlflow_internals.compare_page("1").partition("?")[2]
    names |= {part.partition("=")[0] for part in page.split("&")}
    assert {"mlflow.sharedViewState", "groupBy", "viewStateShareKey"} <= names
    assert {name for name in names if name not in ui} == set()


def test_mlflow_has_the_module_whose_messages_are_silenced() -> None:
    name = mlflow_internals.DATABASE_LOGGER
    assert "logging.getLogger(__name__)" in inspect.getsource(importlib.import_module(name))
