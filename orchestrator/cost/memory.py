"""How much GPU memory a cell takes, from the shape of its model and its settings. Pure.

An estimate: what is counted are the tensors that the code holds at its two peaks, generating a
batch and updating on a micro-batch. Bytes per token were counted on the seven models of SHAPES
under bfloat16 autocast (`tests/test_memory.py` counts them anew on a small one); the GPU's own
context and what its allocator wastes are a round number, not measured.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.planning.cells import Cell
from orchestrator.sampling.model import ModelSource

BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "float32": 4}
NF4 = (
    0.5 + 1 / 64 + 1 / 4096
)  # bytes: half, an 8-bit scale for each 64, a 32-bit one for 256 scales
# Bytes per token and unit of a layer's width that are held, the most seen among the models.
READ = 9  # while a layer reads prompts without gradients
SAVED = 10  # for the backward pass of a layer that is not recomputed
RECOMPUTED = 16  # at the peak of the one layer that is, its own gradients included
CHOOSING = 16  # per logit, while a token is drawn
TILE = 4096 * 32768  # logits that TRL's loss holds at once, whatever the batch
EVALUATED = 128  # rows that an evaluation on a GPU writes at once
OVERHEAD = 3 * 2**29  # context, libraries' workspaces, what the allocator wastes


@dataclass(frozen=True)
class Shape:
    """A decoder with grouped-query attention and a gated MLP.

    `fused` layers hold query, key and value in one matrix, and the MLP's gate beside its input.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    fused: bool = False

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """A layer's matrices by name: inputs, outputs."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        into = {"q_proj": query, "k_proj": key, "v_proj": key}
        gates = {"gate_proj": self.intermediate, "up_proj": self.intermediate}
        if self.fused:
            into, gates = {"qkv_proj": query + 2 * key}, {"gate_up_proj": 2 * self.intermediate}
        wide = {name: (self.hidden, out) for name, out in (into | gates).items()}
        down = {"o_proj": (query, self.hidden), "down_proj": (self.intermediate, self.hidden)}
        return wide | down

    @property
    def in_layers(self) -> int:
        """Parameters of all layers' matrices; norms and biases are below a thousandth."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.projections.values())

    @property
    def embedded(self) -> int:
        """Parameters of the embedding, and of the head where it is another matrix."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """Parameters of the model, to a thousandth."""
        return self.in_layers + self.embedded

    @property
    def width(self) -> int:
        """Of a layer: residual stream, query with key and value, and MLP."""
        return self.hidden + (self.heads + 2 * self.kv_heads) * self.head_dim + self.intermediate

    def adapted(self, r: int, target_modules: str | Sequence[str]) -> int:
        """Parameters of a LoRA adapter; a pattern of names counts as all of them."""
        named = self.projections
        if not isinstance(target_modules, str):
            named = {name: sizes for name, sizes in named.items() if name in target_modules}
        return self.layers * r * sum(inputs + outputs for inputs, outputs in named.values())


# layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, tied: from each config.json.
SHAPES = {
    "Qwen/Qwen3-4B": Shape(36, 2560, 32, 8, 128, 9728, 151936, tied=True),
    "Qwen/Qwen3-14B": Shape(40, 5120, 40, 8, 128, 17408, 151936, tied=False),
    "microsoft/phi-4": Shape(40, 5120, 40, 10, 128, 17920, 100352, tied=False, fused=True),
    "meta-llama/Llama-3.1-8B-Instruct": Shape(32, 4096, 32, 8, 128, 14336, 128256, tied=False),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(24, 896, 14, 2, 64, 4864, 151936, tied=True),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape(28, 1536, 12, 2, 128, 8960, 151936, tied=True),
    "Qwen/Qwen2.5-3B-Instruct": Shape(36, 2048, 16, 2, 128, 11008, 151936, tied=True),
}


def shape_of(source: ModelSource) -> Shape | None:
    """The shape of a model: in the table, in its folder, or in the hub's cache; None elsewhere."""
    if source.location in SHAPES:
        return SHAPES[source.location]
    folder = Path(source.location)
    if source.revision:
        home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
        name = f"models--{source.location.replace('/', '--')}"
        folder = cache / name / "snapshots" / source.revision
    file = folder / "config.json"
    return shape_from(json.loads(file.read_text("utf-8"))) if file.is_file() else None


def shape_from(config: Mapping[str, Any]) -> Shape | None:
    """The shape that a config.json says, or None where it is of another kind of model."""
    config = config.get("text_config", config)
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            intermediate=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            fused=config.get("model_type") == "phi3",
        )
    except (KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Load:
    """What one process of a cell does at once. Lengths are tokens, at most.

    `generated` rows are written together, `updated` rows go through the loss together; `optim` is
    the optimiser's name in TRL's settings.
    """

    generated: int
    updated: int
    prompt: int
    completion: int
    r: int
    target_modules: str | Sequence[str] = "all-linear"
    dtype: str = "auto"
    load_in_4bit: bool = False
    recompute: bool = True
    optim: str = "adamw_torch_fused"
    workers: int = 1


class Memory(NamedTuple):
    """Bytes on one GPU by part; reading, writing and updating take turns."""

    weights: int
    adapter: int  # LoRA's weights, gradients and the optimiser's state
    reading: int  # while a batch's prompts are read
    kv_cache: int  # when the batch is written
    logits: int
    activations: int  # of the update
    overhead: int

    @property
    def peak(self) -> int:
        """The most that is held at any time."""
        moving = max(self.reading, self.kv_cache, self.activations)
        return self.weights + self.adapter + moving + self.logits + self.overhead


def load_of(cell: Cell, prompt: int) -> Load:
    """What one process of a cell does at once, for prompts of at most so many tokens."""
    grpo, model = cell.grpo, cell.probe.model
    batch = int(grpo["per_device_train_batch_size"])
    steps = int(grpo.get("steps_per_generation") or grpo["gradient_accumulation_steps"])
    longest = max(grpo["max_completion_length"], cell.baseline.settings.max_completion_length)
    return Load(
        generated=max(int(grpo.get("generation_batch_size") or batch * steps), EVALUATED),
        updated=batch,
        prompt=prompt,
        completion=int(longest),
        r=int(cell.lora["r"]),
        target_modules=cell.lora["target_modules"],
        dtype=model.dtype,
        load_in_4bit=model.load_in_4bit,
        recompute=bool(grpo.get("gradient_checkpointing", True)),
        optim=str(grpo.get("optim", "adamw_torch_fused")),
        workers=cell.resources.workers,
    )


def training_memory(shape: Shape, load: Load) -> Memory:
    """What a process of a cell holds on its GPU. An estimate, see above."""
    size, both = BYTES[load.dtype], load.prompt + load.completion
    stream = shape.layers * shape.hidden * size  # per token: what every layer begins with
    held = (
        stream + RECOMPUTED * shape.width
        if load.recompute
        else (shape.layers * SAVED * shape.width)
    )
    return Memory(
        weights=weights(shape, load.dtype, load.load_in_4bit),
        adapter=_adapter(shape, load),
        reading=load.generated * load.prompt * (READ * shape.width + kv_bytes(shape, size)),
        kv_cache=load.generated * both * kv_bytes(shape, size),
        logits=max(load.generated * shape.vocab * CHOOSING, 2 * TILE),
        activations=load.updated * both * held,
        overhead=OVERHEAD,
    )


def sampling_memory(
    shape: Shape, dtype: str, load_in_4bit: bool, rows: int, samples: int, prompt: int, limit: int
) -> Memory:
    """What a sampler actor holds that writes `rows` rows at once, `samples` for each prompt.

    Prompts of `prompt` tokens are read once for all their rows, which write up to `limit` tokens.
    """
    prompts, cached = -(-rows // samples), kv_bytes(shape, BYTES[dtype])
    return Memory(
        weights=weights(shape, dtype, load_in_4bit),
        adapter=0,
        reading=prompts * prompt * (READ * shape.width + cached),
        kv_cache=(prompts * prompt + rows * limit) * cached,
        logits=rows * shape.vocab * CHOOSING,
        activations=0,
        overhead=OVERHEAD,
    )


def weights(shape: Shape, dtype: str, load_in_4bit: bool) -> int:
    """Bytes of the base weights; in 4 bits are the layers' matrices, one unpacked at a time."""
    size = BYTES[dtype]
    if not load_in_4bit:
        return shape.parameters * size
    largest = max(inputs * outputs for inputs, outputs in shape.projections.values())
    return int(shape.in_layers * NF4) + (shape.embedded + largest) * size


def kv_bytes(shape: Shape, size: int) -> int:
    """Bytes of the cache per token, where a number takes `size`."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * size


def _adapter(shape: Shape, load: Load) -> int:
    """TRL holds adapters in four bytes, those of a 4-bit model in two; Adam keeps two states."""
    size = 2 if load.load_in_4bit else 4
    states = 2 if "8bit" in load.optim else 2 * size
    buckets = size if load.workers > 1 else 0  # what the workers exchange
    return shape.adapted(load.r, load.target_modules) * (2 * size + states + buckets)
