"""A whole sweep in a minute on this machine: probe, subset, GRPO, evaluation, result.

`decile doctor --gpu` runs it before a real sweep occupies a GPU for hours. It trains the embedded
model through the ordinary pipeline, so what fails here would fail there.
"""

import io
import tempfile
from pathlib import Path
from typing import Any

import yaml

NAME = "smoke_test"


class NoGpu(RuntimeError):
    """torch finds no GPU on this machine."""


def gpu_names() -> str:
    """The GPUs of this machine, by name. Raises NoGpu if there is none."""
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise NoGpu("torch finds no GPU; its checks were skipped")
    names = [torch.cuda.get_device_name(i) for i in range(count)]
    bf16 = "with" if torch.cuda.is_bf16_supported() else "without"
    return f"{', '.join(names)} ({bf16} bfloat16, CUDA {torch.version.cuda})"


def smoke_test(gpus: float = 1) -> str:
    """Run the small sweep and summarise its result. Raises RuntimeError if it fails."""
    from orchestrator.config.catalog import load_config
    from orchestrator.pipeline.progress import ProgressDisplay
    from orchestrator.pipeline.sweep import run_experiment
    from orchestrator.planning.plan import make_plan
    from orchestrator.storage.store import Store
    from orchestrator.tracking import default_tracking_uri

    with tempfile.TemporaryDirectory(prefix="decile-smoke-test-") as folder:
        file = Path(folder) / "experiments.yaml"
        file.write_text(yaml.safe_dump(_experiments(gpus)))
        plan, store = make_plan(load_config(file), NAME), Store(str(Path(folder) / "runs"))
        progress = ProgressDisplay(total=1, out=io.StringIO())
        outcome = run_experiment(plan, store, default_tracking_uri(store), progress)
        if outcome.failed:
            raise RuntimeError("; ".join(outcome.failed.values()))
        result = store.read_json("cells", plan.cells[0].cell_id, "result.json")
    ledger = result["ledger"]
    return (
        f"{ledger['updates']:.0f} updates in {ledger['seconds']:.1f} s, "
        f"{ledger['generated_tokens']:,.0f} tokens generated, "
        f"accuracy {result['accuracy_base']:.2f} → {result['accuracy_final']:.2f}"
    )


def sample_with_vllm() -> str:
    """Sample one prompt with vLLM. Raises RuntimeError or ValueError if it fails."""
    from orchestrator.embedded import embedded_path
    from orchestrator.sampling import Request, SamplingSettings, load_sampler
    from orchestrator.sampling.model import ModelSource
    from orchestrator.storage.hashing import folder_identity

    folder = embedded_path("tiny")
    sampler = load_sampler(ModelSource("tiny", str(folder), folder_identity(folder)), "vllm")
    request = Request("doctor", [{"role": "user", "content": "Ana has the cup."}], range(4))
    [samples] = sampler.sample([request], SamplingSettings(max_completion_length=16))
    return f"{sum(sample.tokens for sample in samples)} tokens in {len(samples)} samples"


def _experiments(gpus: float) -> dict[str, Any]:
    """64 prompts and four updates of the embedded model."""
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
