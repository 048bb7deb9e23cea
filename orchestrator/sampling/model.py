"""Where a model is and what identifies it, before anything heavy is imported."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.hub import Repository


def check_hub_id(hub_id: str) -> None:
    """Raise ValueError if a local file or folder has the id of a hub model.

    transformers and vLLM would load that instead, whatever the revision.
    """
    if Path(hub_id).exists():
        raise ValueError(
            f"hub: {hub_id} would load the local {Path(hub_id).resolve()} instead of the hub's "
            "model: rename it or run from another folder, or write path: to use it"
        )


def hub_cache(hub_id: str) -> Path:
    """The folder of the local cache for a hub model, whether it exists or not."""
    return Repository("model", hub_id, "").folder


@dataclass(frozen=True)
class ModelSource:
    """One base model, resolved.

    `location` is a folder, a hub id, or a file of `recorded` completions; `revision` a hub commit
    (None for the others). `identity` is what keys hash: hub id and revision, or the content of the
    files, the chat template among them. `chat_template_kwargs` reaches `apply_chat_template`
    (`enable_thinking: false`). `target_modules` are the layers that LoRA adapts in this family;
    empty where the experiment sets them.
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

    @property
    def folder(self) -> Path:
        """Its files on this machine, or where they would be: a folder, or the hub's cache."""
        if self.revision is None:
            return Path(self.location)
        return hub_cache(self.location) / "snapshots" / self.revision

    def key(self) -> dict[str, Any]:
        """What decides the model's completions; part of probe keys and cell ids.

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
