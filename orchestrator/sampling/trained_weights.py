"""Weights saved by a user's own trainer, LoRA or full, in place of a model's.

They are checked before sampling; only safetensors are read. The tokenizer and the chat template are
the model's.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.sampling.model import ADAPTED, ModelSource, local_folder
from orchestrator.storage.errors import UserError, one_line, shortened
from orchestrator.storage.identity import content_hashes, folder_identity
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.user_cache import cache_path
from tasks.sources.files import parse_json
from tasks.sources.user_files import MAX_SETTINGS, read_bytes, regular

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MAX_SCALE = 1_000_000  # of LoRA's ranks and alphas
MAX_TOKENIZER = 256 * 2**20  # bytes of a tokenizer.json
_LORA_A, _LORA_B = ".lora_A.weight", ".lora_B.weight"
_LORA = re.compile(
    r"(?:base_model\.model\.)?(?P<layer>.+)\.lora_(?:embedding_)?(?P<part>[AB])(?:\.weight)?"
)
_FROM_LAYER = re.compile(r"\d+\..*")

Shape = tuple[int, ...]


def with_adapter(model: ModelSource, folder: Path) -> ModelSource:
    """The model with a LoRA adapter in PEFT's layout on top of it. Raises UserError.

    Its layers are compared with the model's if the model's files are on this machine.
    """
    _check_folder(folder, "adapter", ADAPTER_CONFIG)
    settings = _json(folder / ADAPTER_CONFIG)
    if settings.get("peft_type") != "LORA":
        kind = shortened(settings.get("peft_type"))
        raise UserError(f"adapter {folder}: its peft_type is {kind}: write a LoRA adapter")
    weights = folder / ADAPTER_WEIGHTS
    if not weights.is_file():
        raise UserError(f"adapter {folder}: {_no_safetensors(folder)}")
    adapted, base = _tensors(weights), _shapes(model.folder)
    # A quantized base has different shapes, and target_parameters are not modules.
    quantized = base and "quantization_config" in _json(model.folder / CONFIG)
    if not settings.get("target_parameters"):
        _check_config(folder, adapted, settings)
        if base and not quantized:
            _check_layers(folder, adapted, model.name, base)
            _check_targets(folder, adapted, settings, base)
    content = canonical_hash(content_hashes([folder / ADAPTER_CONFIG, weights]))
    identity = f"{model.base.identity}{ADAPTED}{content}"
    return replace(model.base, identity=identity, adapter=str(folder.resolve()))


def check_adapter(source: ModelSource) -> None:
    """Raise ValueError if the files of a model's adapter are not those that its identity hashes."""
    try:
        identity = with_adapter(source, Path(source.adapter)).identity
    except UserError as error:
        raise ValueError(str(error)) from error
    if identity != source.identity:
        raise ValueError(
            f"adapter {source.adapter} was changed since the command read it: write its files "
            "back, or run the command again"
        )


def _check_config(folder: Path, adapted: Mapping[str, Shape], settings: Mapping[str, Any]) -> None:
    """Raise UserError unless the tensors have the layers and the ranks of the configuration."""
    _check_settings(folder, settings)
    patterns = settings.get("rank_pattern") or {}
    targets = settings.get("target_modules")
    advice = f"copy the {ADAPTER_CONFIG} that was saved with {ADAPTER_WEIGHTS}"
    matches = [match for name in adapted if (match := _LORA.fullmatch(name))]
    parts = {(match["layer"], match["part"]) for match in matches}
    for match in matches:
        layer, shape = match["layer"], adapted[match[0]]
        other = "BA"["AB".index(match["part"])]
        if (layer, other) not in parts or len(shape) != 2:
            problem = f"has no lora_{other}" if len(shape) == 2 else f"has the shape {[*shape]}"
            raise UserError(
                f"adapter {folder}: {layer} {problem} in {ADAPTER_WEIGHTS}: save it again"
            )
        if isinstance(targets, list) and not any(f".{layer}".endswith(f".{t}") for t in targets):
            raise UserError(
                f"adapter {folder}: {layer} is not in the target_modules of {ADAPTER_CONFIG}: "
                f"{advice}"
            )
        fits = (p for p in patterns if re.fullmatch(rf"(.*\.)?({p})", layer))  # as in PEFT
        rank = patterns.get(next(fits, None), settings.get("r"))
        if (own := shape[match["part"] == "B"]) != rank:
            raise UserError(
                f"adapter {folder}: {layer} has rank {own}, but {ADAPTER_CONFIG} has {rank!r}: "
                f"{advice}"
            )


def _check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise UserError for settings with types that differ from PEFT's, and slow expressions.

    A quantified group can take exponential time, and many quantifiers a power of the length.
    """
    patterns = [settings.get(name) or {} for name in ("rank_pattern", "alpha_pattern")]
    wrong = next((each for each in patterns if not isinstance(each, dict)), None)
    numbers = {"r": settings.get("r"), "lora_alpha": settings.get("lora_alpha", 1)}
    for each in () if wrong is not None else patterns:
        numbers |= each
    for name, value in numbers.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value <= MAX_SCALE:
            raise UserError(
                f"adapter {folder}: {ADAPTER_CONFIG} has {shortened(name)}: {shortened(value)}, "
                f"which is not a number from 0 to {MAX_SCALE:,}: save the adapter again"
            )
    expressions = [*patterns[0], *patterns[1]] if wrong is None else [wrong]
    targets = settings.get("target_modules")
    expressions += [targets] if isinstance(targets, str) else []
    for text in expressions:
        try:
            ends = not re.search(r"\)[*+{]", text) and len(re.findall(r"[*+{]", text)) <= 4
            re.compile(text)
        except (re.error, TypeError):
            ends = False
        if not ends:
            raise UserError(
                f"adapter {folder}: {ADAPTER_CONFIG} has the expression {shortened(text)}: write "
                "names of modules, or a regular expression without repeated groups"
            )


def _check_targets(
    folder: Path,
    adapted: Mapping[str, Shape],
    settings: Mapping[str, Any],
    base: Mapping[str, set[Shape]],
) -> None:
    """Raise UserError if the file lacks a layer: PEFT would start with random numbers."""
    targets = settings.get("target_modules")
    others = ("layers_to_transform", "layers_pattern", "exclude_modules")
    if not isinstance(targets, list) or any(settings.get(name) for name in others):
        return
    layers = (match["layer"] for name in adapted if (match := _LORA.fullmatch(name)))
    known = {_without_prefix(f"{layer}.weight") for layer in layers}
    ends = tuple(f".{target}.weight" for target in targets)
    lacking = [name for name in base if f".{name}".endswith(ends) and name not in known]
    if lacking:
        raise UserError(
            f"adapter {folder}: {ADAPTER_WEIGHTS} has no {min(lacking).removesuffix('.weight')}, "
            f"which is one of the target_modules of {ADAPTER_CONFIG}: save it again"
        )


def _check_layers(
    folder: Path, adapted: Mapping[str, Shape], name: str, base: Mapping[str, set[Shape]]
) -> None:
    """Raise UserError unless every layer of the adapter fits a layer of the base model."""
    layers = [each.removesuffix(_LORA_A) for each in adapted if each.endswith(_LORA_A)]
    if not layers:
        raise UserError(f"adapter {folder}: {ADAPTER_WEIGHTS} has no LoRA layers: save it again")
    for layer in layers:
        inputs = adapted[layer + _LORA_A][1:]
        outputs = adapted.get(layer + _LORA_B, ())[:1]
        shapes = base.get(_without_prefix(f"{layer}.weight"), set())
        if not any(sorted(shape) == sorted(outputs + inputs) for shape in shapes):
            raise UserError(
                f"adapter {folder}: it is for a different base model: {layer} does not fit {name}: "
                "write the model that it was trained on"
            )


def with_checkpoint(model: ModelSource, folder: Path) -> ModelSource:
    """The model with the full weights and the configuration of a checkpoint. Raises UserError."""
    _check_folder(folder, "checkpoint", CONFIG)
    listed = _json(folder / INDEX).get("weight_map", {}) if (folder / INDEX).is_file() else {}
    if not isinstance(listed, dict) or not all(isinstance(n, str) for n in listed.values()):
        raise UserError(f"checkpoint {folder}: {INDEX} does not name files: save it again")
    _json(folder / CONFIG)
    for name in sorted({*listed.values()}):
        if not (folder / name).is_file():
            raise UserError(f"checkpoint {folder}: {name} is missing: save it again")
    own = _shapes(folder)
    if not own:
        raise UserError(f"checkpoint {folder}: {_no_safetensors(folder)}")
    try:
        base_folder = local_folder(model)  # the tokenizer is needed here
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    for name, shapes in _shapes(base_folder).items():
        tied = name == "lm_head.weight"  # to the embeddings: it may be left out
        if own.get(name, shapes if tied else set()) != shapes:
            problem = "has a different shape" if name in own else "is missing"
            raise UserError(
                f"checkpoint {folder}: it is of another model: {name} of {model.name} {problem}: "
                "write the model that it was trained from, or declare it under models with path"
            )
    linked = _linked(folder, base_folder)
    identity = folder_identity(linked)
    return replace(model.base, location=str(linked), identity=identity, revision=None)


def _linked(checkpoint: Path, base: Path) -> Path:
    """A folder of links: weights and configuration of a checkpoint, other files of the base model.

    It is in the user's cache; its name hashes the linked files and their content.
    """
    weights = {CONFIG, INDEX}
    names = weights | {file.name for file in checkpoint.glob("*.safetensors")}
    files = [checkpoint / name for name in sorted(names) if (checkpoint / name).is_file()]
    for file in sorted(base.iterdir()):
        if file.is_file() and file.name not in weights and file.suffix != ".safetensors":
            files.append(file)
    content = zip(map(str, map(Path.absolute, files)), content_hashes(files), strict=True)
    folder = cache_path("checkpoints") / canonical_hash([*map(list, content)])
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent))
        for file in files:
            (new / file.name).symlink_to(file.absolute())
        try:
            os.rename(new, folder)
        except OSError:  # another command has just created it
            shutil.rmtree(new)
    return folder


def adapter_settings(folder: Path) -> dict[str, Any]:
    """An adapter's configuration, by PEFT's names."""
    return _json(folder / ADAPTER_CONFIG)


def adapter_rank(folder: Path) -> int:
    """The largest rank of an adapter's layers."""
    settings = adapter_settings(folder)
    ranks = [settings["r"], *(settings.get("rank_pattern") or {}).values()]
    return max(map(int, ranks))


def unused_settings(model: ModelSource, folder: Path) -> list[str]:
    """Sentences on a different template, tokenizer or base model in a trainer's folder."""
    base, notes = model.folder, []
    template, known = _template(folder), _template(base)
    if template and known and template != known:
        notes.append(f"{folder} has a different chat template: that of {model.name} is used")
    files = [folder / "tokenizer.json", base / "tokenizer.json"]
    if all(file.is_file() for file in files):
        own, base_own = (_json(file, MAX_TOKENIZER).get("model") for file in files)
        vocabularies = [each.get("vocab") for each in (own, base_own) if isinstance(each, dict)]
        if vocabularies[:1] != vocabularies[1:]:
            notes.append(f"{folder} has a different tokenizer: that of {model.name} is used")
    adapter = folder / ADAPTER_CONFIG
    trained_on = _json(adapter).get("base_model_name_or_path") if adapter.is_file() else None
    if model.repository and trained_on not in (None, model.location, str(base)):
        notes.append(f"{folder} names {trained_on} as its base model: {model.location} is used")
    return notes


def _template(folder: Path) -> str:
    """The chat template of a folder; empty if it has none."""
    file = folder / "chat_template.jinja"
    settings = folder / "tokenizer_config.json"
    if file.is_file():
        return read_bytes(file, MAX_SETTINGS).decode(errors="replace").strip()
    return str(_json(settings).get("chat_template", "")).strip() if settings.is_file() else ""


def _check_folder(folder: Path, option: str, needed: str) -> None:
    """Raise UserError unless it is a folder with the file that identifies its kind."""
    try:
        is_folder = folder.is_dir()
    except (OSError, ValueError):  # over-long, or with a null byte
        is_folder = False
    if not is_folder:
        raise UserError(f"{option} {shortened(str(folder))} is not a folder: write the path of one")
    if (folder / needed).is_file():
        return
    advice = "write the folder that a trainer has saved"
    if saved := sorted(folder.glob(f"checkpoint-*/{needed}")):
        advice = f"write one of its checkpoints, such as {saved[-1].parent}"
    elif (folder / ADAPTER_CONFIG).is_file():
        advice = f"it is an adapter, write --adapter {folder}"
    elif (folder / CONFIG).is_file():
        advice = f"it has full weights, write --checkpoint {folder}"
    raise UserError(f"{option} {folder} has no {needed}: {advice}")


def _no_safetensors(folder: Path) -> str:
    pickled = [*folder.glob("*.bin"), *folder.glob("*.pt")]
    problem = f"{pickled[0].name} is pickled, which can run code" if pickled else "has no weights"
    return f"{problem}: save it as safetensors"


def _json(file: Path, most: int = MAX_SETTINGS) -> dict[str, Any]:
    content = parse_json(read_bytes(file, most), str(file))
    if not isinstance(content, dict):
        raise UserError(f"{file} is not a JSON object: save the folder again")
    return content


def _tensors(file: Path) -> dict[str, Shape]:
    """Name -> shape. Raises UserError for an incomplete file, or one of a different format."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(regular(file), framework="np") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file} is damaged ({one_line(str(error))}): save it again") from error


def _shapes(folder: Path) -> dict[str, set[Shape]]:
    """The shapes of all weights in a folder, by name without prefix."""
    shapes: dict[str, set[Shape]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, shape in _tensors(file).items():
            shapes.setdefault(_without_prefix(name), set()).add(shape)
    return shapes


def _without_prefix(name: str) -> str:
    """A tensor's name from its layer's number on; the part before depends on the model's class."""
    layer = _FROM_LAYER.search(name)
    return layer[0] if layer else ".".join(name.split(".")[-2:])
