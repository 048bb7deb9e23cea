"""A whole sweep in a minute on this machine: probe, subset, GRPO, evaluation, result.

`decile doctor --gpu` runs it on a GPU before anybody pays for hours of one. It is the embedded
model through the ordinary path, so what fails here would fail there.
"""

import io
import tempfile
from pathlib import Path
from typing import Any

import yaml

NAME = "rehearsal"


class NoGpu(RuntimeError):
    """torch sees no GPU here."""


def gpu_names() -> str:
    """The GPUs of this machine. Raises NoGpu where torch sees none."""
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise NoGpu("torch sees no GPU: nothing of it was tried")
    names = [torch.cuda.get_device_name(i) for i in range(count)]
    bf16 = "with" if torch.cuda.is_bf16_supported() else "without"
    return f"{', '.join(names)} ({bf16} bfloat16, CUDA {torch.version.cuda})"


def rehearse(gpus: float = 1) -> str:
    """Run the small sweep; says what it took. Raises RuntimeError where it fails."""
    from orchestrator.config.catalog import load_config
    from orchestrator.pipeline.progress import Progress
    from orchestrator.pipeline.sweep import run_experiment
    from orchestrator.planning.plan import make_plan
    from orchestrator.storage.store import Store
    from orchestrator.tracking import default_tracking_uri

    with tempfile.TemporaryDirectory(prefix="decile-rehearsal-") as folder:
        file = Path(folder) / "experiments.yaml"
        file.write_text(yaml.safe_dump(_content(gpus)))
        plan, store = make_plan(load_config(file), NAME), Store(str(Path(folder) / "runs"))
        progress = Progress(total=1, out=io.StringIO())
        outcome = run_experiment(plan, store, default_tracking_uri(store), progress)
        if outcome.failed:
            raise RuntimeError("; ".join(outcome.failed.values()))
        return _said(store.read_json("cells", plan.cells[0].cell_id, "result.json"))


def sample_with_vllm() -> str:
    """One prompt through the vLLM engine; RuntimeError or ValueError says what is wrong."""
    from orchestrator.embedded import embedded_path
    from orchestrator.sampling import Request, SamplingSettings, load_sampler
    from orchestrator.sampling.model import ModelSource
    from orchestrator.storage.hashing import folder_identity

    folder = embedded_path("tiny")
    sampler = load_sampler(ModelSource("tiny", str(folder), folder_identity(folder)), "vllm")
    request = Request("doctor", [{"role": "user", "content": "Ana has the cup."}], range(4))
    [drawn] = sampler.sample([request], SamplingSettings(max_completion_length=16))
    return f"{sum(completion.tokens for completion in drawn)} tokens in {len(drawn)} samples"


def _content(gpus: float) -> dict[str, Any]:
    """Sixty-four prompts and four updates of the embedded model."""
    return {
        "models": {"tiny": {"embedded": "tiny"}},
        "datasets": {
            "few": {"task": "shuffled_objects", "options": {"train": 64, "test": 16}},
        },
        "experiments": {
            NAME: {
                "grid": {"model": ["tiny"], "dataset": ["few"], "policy": ["middle"]},
                "budget": 16,
                "probe": {"samples": 4, "max_completion_length": 64},
                "grpo": {
                    "max_steps": 4,
                    "num_generations": 4,
                    "per_device_train_batch_size": 16,
                    "max_completion_length": 64,
                    "save_steps": 2,
                },
                "lora": {"r": 8},
                "evaluate": {"samples": 2},
                "resources": {"cpus": 1, "gpus": gpus},
            }
        },
    }


def _said(result: dict[str, Any]) -> str:
    spent = result["ledger"]
    return (
        f"{spent['updates']:.0f} updates in {spent['seconds']:.1f} s, "
        f"{spent['generated_tokens']:,.0f} tokens generated, "
        f"accuracy {result['accuracy_base']:.2f} → {result['accuracy_final']:.2f}"
    )
