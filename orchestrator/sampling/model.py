"""A model's location, identity and file contents, without slow imports.

Files of a model never run code.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tasks import TaskError
from tasks.sources.hub import Repository, downloaded_folder
from tasks.sources.user_files import MAX_SETTINGS, open_file, read_bytes

ADAPTED = "+adapter:"  # in an identity, before the hash of the adapter


def check_hub_id(hub_id: str) -> None:
    """Raise ValueError if a local file or folder has the id of a Hub model.

    transformers and vLLM would load it instead, for any revision.
    """
    if Path(hub_id).exists():
        raise ValueError(
            f"hub: {hub_id} would load the local {Path(hub_id).resolve()} instead of the hub's "
            "model: rename it or run from another folder, or write path: to use it"
        )


@dataclass(frozen=True)
class ModelSource:
    """One base model, resolved.

    location: a folder, a Hub id, or a file of `recorded` completions. revision: a Hub commit, else
    None. identity: the hashed part of keys: Hub id and revision, or the content of the files,
    including the chat template. chat_template_kwargs: passed to `apply_chat_template`
    (`enable_thinking: false`). target_modules: the layers that LoRA adapts in this model family;
    empty if the experiment sets them. adapter: the folder of a LoRA adapter that the model samples
    with; `identity` then includes its content. adapter_label: the adapter's name on a shared
    engine. start: where an adapter that cells train further comes from, for people.
    """

    name: str
    location: str
    identity: str
    revision: str | None = None
    dtype: str = "auto"
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    recorded: bool = False
    attn_implementation: str = "auto"
    load_in_4bit: bool = False
    target_modules: tuple[str, ...] = ()
    adapter: str = ""
    adapter_label: str = ""
    start: str = ""

    @property
    def base(self) -> "ModelSource":
        """The model without an adapter."""
        identity = self.identity.partition(ADAPTED)[0]
        return replace(self, identity=identity, adapter="", adapter_label="", start="")

    @property
    def title(self) -> str:
        """For people: the name, and what its cells start from."""
        return f"{self.name} from {self.start}" if self.start else self.name

    @property
    def repository(self) -> Repository | None:
        """Its Hub repository at its commit; None for a folder or a recording."""
        return None if self.revision is None else Repository("model", self.location, self.revision)

    @property
    def folder(self) -> Path:
        """The actual or future place of its files on this machine: a folder, or the Hub's cache."""
        repository = self.repository
        return Path(self.location) if repository is None else repository.snapshot

    def key(self) -> dict[str, Any]:
        """What determines the model's completions; part of probe keys and cell ids.

        Settings that were added later are left out at their defaults, so that stored keys stay
        valid.
        """
        later = {"attn_implementation": "auto", "load_in_4bit": False}
        return {
            "identity": self.identity,
            "dtype": self.dtype,
            "chat_template_kwargs": self.chat_template_kwargs,
            **{k: getattr(self, k) for k, default in later.items() if getattr(self, k) != default},
        }


_MAX_HEADER = 100_000_000  # bytes; the limit of safetensors
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def local_folder(source: ModelSource) -> Path:
    """The model's folder; a Hub model's files are downloaded unless the cache has them.

    Raises ValueError if there is no folder, or it has no weights as safetensors.
    """
    folder = Path(source.location)
    if repository := source.repository:
        check_hub_id(source.location)
        try:
            folder = downloaded_folder(repository)
        except TaskError as error:
            raise ValueError(f"model {source.name}: {error}") from error
    if not any(folder.glob("*.safetensors")):
        raise ValueError(
            f"model {source.name}: {folder} has no weights as safetensors: write the path of a "
            "folder with config.json, model.safetensors and the tokenizer"
        )
    return folder


def stored_dtype(folder: Path) -> str:
    """The precision that `dtype: auto` means: the configuration's, or the first stored tensor's.

    As in transformers' `from_pretrained`. "auto" if it is not float32, bfloat16 or float16.
    """
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    dtype = str(config.dtype or "").removeprefix("torch.")
    if not dtype:
        with open_file(min(folder.glob("*.safetensors"))) as file:
            (length,) = struct.unpack("<Q", file.read(8))
            tensors: dict[str, dict[str, Any]] = json.loads(file.read(min(length, _MAX_HEADER)))
        kinds = (tensor.get("dtype") for tensor in tensors.values())
        dtype = next((_DTYPES[kind] for kind in kinds if kind in _DTYPES), "")
    return dtype if dtype in _DTYPES.values() else "auto"


def window_bytes(folder: Path, tokens: int | None = None) -> int:
    """Bytes of the keys and values of `tokens`, or of the model's whole window, in float32."""
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    length = int(tokens or config.max_position_embeddings)
    return int(2 * 4 * config.num_hidden_layers * heads * width * length)


def context_length(source: ModelSource) -> int | None:
    """The context length of the model in tokens; None if its files are not here or lack it."""
    file = source.folder / "config.json"
    return context_of(json.loads(read_bytes(file, MAX_SETTINGS))) if file.is_file() else None


def context_of(config: Mapping[str, Any]) -> int | None:
    """The same from the content of config.json."""
    config = config.get("text_config", config)
    length = config.get("max_position_embeddings") or config.get("n_positions")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaled = rope.get("factor", 1) * rope.get("original_max_position_embeddings", 0)
    return max(int(length), int(scaled)) if length else None


def token_counts(source: ModelSource, texts: Iterable[str]) -> list[int] | None:
    """Tokens of each text, without a chat template; None if the tokenizer's file is not here.

    Reads it without transformers, which takes seconds to import.
    """
    from tokenizers import Tokenizer

    file = source.folder / "tokenizer.json"
    if not file.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    return [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]
