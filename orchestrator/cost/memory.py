"""The GPU memory of a cell, from the shape of its model and its settings. Pure.

This is an estimate of the tensors at the two peaks: generating a batch, and updating on a
micro-batch. Bytes per token were counted on seven models of SHAPES with bfloat16 autocast
(`test_memory.py` repeats the count on a small model). The GPU's context and the allocator's waste
are a round number, not measured.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from orchestrator.planning.cells import Cell
from orchestrator.sampling.batches import PROMPT_TOKENS
from orchestrator.sampling.gpu_peaks import Phase
from orchestrator.sampling.model import ModelSource
from tasks.sources.user_files import MAX_SETTINGS, read_bytes

GIB = 2**30
CHARACTERS_PER_TOKEN = 4.0  # of English text, if not tokenized
TEMPLATE_TOKENS = 40.0  # of the chat template around a question
# Bytes of a 4-bit weight: half a byte, an 8-bit scale per 64, a 32-bit scale per 256 of those.
NF4_BYTES = 0.5 + 1 / 64 + 1 / 4096
# Bytes per token and unit of a layer's width: the maximum over the models of SHAPES.
PREFILL_BYTES = 9  # while a layer reads prompts without gradients
SAVED_BYTES = 10  # saved for the backward pass, for each layer without gradient checkpointing
RECOMPUTED_BYTES = 16  # peak of the one layer that is recomputed, with its gradients
SAMPLING_BYTES = 16  # per logit, while a token is sampled
LOSS_LOGITS = 4096 * 32768  # logits that TRL's loss holds at once, for any batch
DECODER_ROWS = 128  # completions that rollouts and evaluations sample at once on a GPU
CPU_ROWS = 256  # and on CPUs
OVERHEAD_BYTES = 3 * 2**29  # context, libraries' workspaces, fragmentation


def bytes_of(dtype: str) -> int:
    """Bytes of a number of a model's `dtype`."""
    return 4 if dtype == "float32" else 2


class Gpu(NamedTuple):
    """A type of GPU, and its memory in bytes."""

    name: str
    memory: float


# The sizes that the modules are sold by.
GPUS = {
    "a100": Gpu("A100 80GB", 80 * GIB),
    "h100": Gpu("H100 80GB", 80 * GIB),
    "h200": Gpu("H200 141GB", 141e9),
    "l40s": Gpu("L40S 48GB", 48e9),
}
DEFAULT_GPU = "h100"  # if neither the user nor the cluster names one


def gpu_type(names: Iterable[str]) -> str | None:
    """The type in GPUS that one of these names, such as Ray's resources, contains."""
    return next((gpu for name in names for gpu in GPUS if gpu in name.lower()), None)


@dataclass(frozen=True)
class ModelShape:
    """A decoder with grouped-query attention and a gated MLP.

    `fused` layers have one matrix for query, key and value, and one for the MLP's gate and input.
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
        """A layer's matrices by name: (inputs, outputs)."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        outputs = {"q_proj": query, "k_proj": key, "v_proj": key}
        outputs |= {"gate_proj": self.intermediate, "up_proj": self.intermediate}
        if self.fused:
            outputs = {"qkv_proj": query + 2 * key, "gate_up_proj": 2 * self.intermediate}
        return {name: (self.hidden, out) for name, out in outputs.items()} | {
            "o_proj": (query, self.hidden),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def layer_parameters(self) -> int:
        """Parameters of all layers' matrices; norms and biases are less than 0.1 %."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.projections.values())

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding, and of the output head unless it is tied."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """Parameters of the model, within 0.1 %."""
        return self.layer_parameters + self.embedding_parameters

    @property
    def width(self) -> int:
        """Width of a layer: residual stream, query, key and value, and MLP."""
        return self.hidden + (self.heads + 2 * self.kv_heads) * self.head_dim + self.intermediate

    def lora_parameters(self, r: int, target_modules: str | Sequence[str]) -> int:
        """Parameters of a LoRA adapter; a pattern instead of names counts as all matrices."""
        targets = self.projections
        if not isinstance(target_modules, str):
            targets = {name: sizes for name, sizes in targets.items() if name in target_modules}
        return self.layers * r * sum(inputs + outputs for inputs, outputs in targets.values())


class HubModel(NamedTuple):
    """A model with a known shape, so that no file must be read, and its commit."""

    revision: str
    shape: ModelShape


# layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, tied: from each config.json.
HUB_MODELS = {
    "Qwen/Qwen3-4B": HubModel(
        "1cfa9a7208912126459214e8b04321603b3df60c",
        ModelShape(36, 2560, 32, 8, 128, 9728, 151936, tied=True),
    ),
    "Qwen/Qwen3-14B": HubModel(
        "40c069824f4251a91eefaf281ebe4c544efd3e18",
        ModelShape(40, 5120, 40, 8, 128, 17408, 151936, tied=False),
    ),
    "microsoft/phi-4": HubModel(
        "2db69c1c3e91a05d2c64a3185acfbaf36f744e25",
        ModelShape(40, 5120, 40, 10, 128, 17920, 100352, tied=False, fused=True),
    ),
    "meta-llama/Llama-3.1-8B-Instruct": HubModel(
        "0e9e39f249a16976918f6564b8830bc894c89659",
        ModelShape(32, 4096, 32, 8, 128, 14336, 128256, tied=False),
    ),
    "Qwen/Qwen2.5-0.5B-Instruct": HubModel(
        "7ae557604adf67be50417f59c2c2f167def9a775",
        ModelShape(24, 896, 14, 2, 64, 4864, 151936, tied=True),
    ),
    "Qwen/Qwen2.5-1.5B-Instruct": HubModel(
        "989aa7980e4cf806f80c7fef2b1adb7bc71aa306",
        ModelShape(28, 1536, 12, 2, 128, 8960, 151936, tied=True),
    ),
    "Qwen/Qwen2.5-3B-Instruct": HubModel(
        "aa8e72537993ba99e69dfaafa59ed015b17504d1",
        ModelShape(36, 2048, 16, 2, 128, 11008, 151936, tied=True),
    ),
    "HuggingFaceTB/SmolLM2-135M-Instruct": HubModel(
        "12fd25f77366fa6b3b4b768ec3050bf629380bac",
        ModelShape(30, 576, 9, 3, 64, 1536, 49152, tied=True),
    ),
}
SHAPES = {name: model.shape for name, model in HUB_MODELS.items()}


def shape_of(source: ModelSource) -> ModelShape | None:
    """The shape of a model in SHAPES, in a folder or in the Hub's cache; None if unknown."""
    if source.location in SHAPES:
        return SHAPES[source.location]
    file = source.folder / "config.json"
    return shape_from(json.loads(read_bytes(file, MAX_SETTINGS))) if file.is_file() else None


def shape_from(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape in a config.json; None for other kinds of models."""
    config = config.get("text_config", config)
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return ModelShape(
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
class TrainingLoad:
    """The settings that determine the memory of one process of a cell. Lengths are maxima in
    tokens.

    generated: rows that are sampled together, fewer with long prompts unless `in_one_batch`.
    updated: rows that go through the loss together. optim: the optimiser's name in TRL's settings.
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
    in_one_batch: bool = False


class Memory(NamedTuple):
    """Bytes on one GPU by part; prefill, decoding and updating take turns."""

    weights: int
    adapter: int  # LoRA's weights, gradients and the optimiser's state
    reading: int  # activations of the prefill
    kv_cache: int  # at the end of decoding
    logits: int
    activations: int  # of the update
    overhead: int

    @property
    def phases(self) -> dict[Phase, int]:
        """Bytes of the tensors at the peak of each phase."""
        always = self.weights + self.adapter + self.logits
        sampling = always + max(self.reading, self.kv_cache)
        update = always + self.activations
        return {"rollout": sampling, "update": update, "evaluation": sampling}

    @property
    def peak(self) -> int:
        """Bytes at the peak."""
        return max(self.phases.values()) + self.overhead


def training_load(cell: Cell, prompt: int) -> TrainingLoad:
    """The memory load of one process of a cell, for prompts of at most `prompt` tokens."""
    grpo, model, batch = cell.grpo_settings, cell.probe.model, cell.batch
    generated = DECODER_ROWS
    if cell.why_trl_draws:
        generated = max(int(batch.micro * batch.per_generation), DECODER_ROWS)
    longest = max(grpo.max_completion_length, cell.baseline.settings.max_completion_length)
    return TrainingLoad(
        generated=generated,
        updated=batch.micro,
        prompt=prompt,
        completion=longest,
        r=int(cell.lora["r"]),
        target_modules=cell.lora["target_modules"],
        dtype=model.dtype,
        load_in_4bit=model.load_in_4bit,
        recompute=grpo.gradient_checkpointing is not False,
        optim=grpo.optim or "",
        workers=cell.resources.workers,
        in_one_batch=bool(cell.why_trl_draws),
    )


def training_memory(shape: ModelShape, load: TrainingLoad) -> Memory:
    """Estimated memory of one process of a cell."""
    size, length = bytes_of(load.dtype), load.prompt + load.completion
    prefill = PREFILL_BYTES * shape.width + kv_bytes(shape, size)
    if load.recompute:  # the input of every layer is kept, and one layer is recomputed at a time
        saved = shape.layers * shape.hidden * size + RECOMPUTED_BYTES * shape.width
    else:
        saved = shape.layers * SAVED_BYTES * shape.width
    # TRL stores adapters in four bytes per number, or two for a 4-bit model; Adam has two states.
    adapter_size = 2 if load.load_in_4bit else 4
    states = 2 if "8bit" in load.optim else 2 * adapter_size
    read = load.generated * load.prompt  # tokens of the prompts of a batch
    if not load.in_one_batch:
        read = min(read, max(load.prompt, PROMPT_TOKENS))
    buckets = adapter_size if load.workers > 1 else 0  # gradients that the workers exchange
    adapter_bytes = 2 * adapter_size + states + buckets
    return Memory(
        weights=weight_bytes(shape, load.dtype, load.load_in_4bit),
        adapter=shape.lora_parameters(load.r, load.target_modules) * adapter_bytes,
        reading=read * prefill,
        kv_cache=(read + load.generated * load.completion) * kv_bytes(shape, size),
        logits=max(load.generated * shape.vocab * SAMPLING_BYTES, 2 * LOSS_LOGITS),
        activations=load.updated * length * saved,
        overhead=OVERHEAD_BYTES,
    )


def longest_prompt(
    shape: ModelShape, dtype: str, load_in_4bit: bool, completion: int, memory: float
) -> int:
    """Tokens of the longest prompt that may fit `memory` bytes, in a batch of one row.

    It counts only the weights, the cache and the input of a layer, so it is not too low.
    """
    size = bytes_of(dtype)
    free = memory - weight_bytes(shape, dtype, load_in_4bit)
    free -= completion * kv_bytes(shape, size)
    return max(0, int(free / (kv_bytes(shape, size) + shape.hidden * size)))


def weight_bytes(shape: ModelShape, dtype: str, load_in_4bit: bool) -> int:
    """Bytes of the base weights; 4 bits apply to the layers' matrices, unpacked one at a time."""
    size = bytes_of(dtype)
    if not load_in_4bit:
        return shape.parameters * size
    largest = max(inputs * outputs for inputs, outputs in shape.projections.values())
    return int(shape.layer_parameters * NF4_BYTES) + (shape.embedding_parameters + largest) * size


def kv_bytes(shape: ModelShape, size: int) -> int:
    """Bytes of the KV cache per token, with `size` bytes per number."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * size


MICRO_BATCHES = (16, 8, 4, 2, 1)  # completions that go through the loss together
HEADROOM = 0.9  # share of the memory that an estimate may fill


class Sizing(NamedTuple):
    """The largest micro-batch that fits, in 4 bits only if nothing else does.

    peak: the estimated memory in bytes. fits: False if even the smallest does not fit.
    """

    batch: int
    load_in_4bit: bool
    peak: int
    fits: bool


def fit_training(
    shape: ModelShape,
    memory: float,
    completions: int,
    prompt: int,
    completion: int,
    r: int,
    *,
    on_cpus: bool = False,
) -> Sizing:
    """Fit LoRA training into `memory` bytes, with `completions` per update.

    `prompt` and `completion` are maxima in tokens. CPUs compute in float32.
    """
    batches = [size for size in MICRO_BATCHES if completions % size == 0]
    sizings = []
    for in_4bit in (False,) if on_cpus else (False, True):
        for batch in batches:
            load = TrainingLoad(DECODER_ROWS, batch, prompt, completion, r, dtype="bfloat16")
            if on_cpus:
                load = replace(load, generated=CPU_ROWS, dtype="float32", recompute=False)
            parts = training_memory(shape, replace(load, load_in_4bit=in_4bit))
            if on_cpus:  # the activations of an update were counted in bfloat16
                parts = parts._replace(activations=2 * parts.activations)
            peak = parts.peak
            sizings.append(Sizing(batch, in_4bit, peak, peak <= HEADROOM * memory))
    return next((sizing for sizing in sizings if sizing.fits), sizings[-1])
