"""The model that `decile init` writes: from an embedded name, a folder or a Hub id."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.cost.memory import ModelShape, shape_of
from orchestrator.embedded import EMBEDDED, embedded_path
from orchestrator.sampling.model import ModelSource, check_hub_id, hub_cache
from orchestrator.storage.errors import UserError, shortened

# The commits in the experiments.yaml of the repository, so that no network is needed.
REVISIONS: Mapping[str, str] = {
    "Qwen/Qwen3-4B": "1cfa9a7208912126459214e8b04321603b3df60c",
    "Qwen/Qwen3-14B": "40c069824f4251a91eefaf281ebe4c544efd3e18",
    "microsoft/phi-4": "2db69c1c3e91a05d2c64a3185acfbaf36f744e25",
    "meta-llama/Llama-3.1-8B-Instruct": "0e9e39f249a16976918f6564b8830bc894c89659",
    "Qwen/Qwen2.5-0.5B-Instruct": "7ae557604adf67be50417f59c2c2f167def9a775",
    "Qwen/Qwen2.5-1.5B-Instruct": "989aa7980e4cf806f80c7fef2b1adb7bc71aa306",
    "Qwen/Qwen2.5-3B-Instruct": "aa8e72537993ba99e69dfaafa59ed015b17504d1",
}
_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([0-9a-f]{40}))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_THINKS = re.compile(r"Qwen/Qwen3-[\d.]+B")  # unless the chat template is told not to
_TIMEOUT = 10.0  # seconds for the Hub's answer


class ModelChoice(NamedTuple):
    """A model by the name it gets in the file, its entry there, and its shape if that is known."""

    name: str
    entry: dict[str, Any]
    shape: ModelShape | None

    @property
    def embedded(self) -> str | None:
        """The name of an embedded model."""
        return self.entry.get("embedded")


def choose_model(text: str) -> ModelChoice:
    """An embedded model's name, a folder, or a Hub id with or without @COMMIT.

    Raises UserError if it is none of these, or if a Hub model's commit cannot be determined.
    """
    if text in EMBEDDED:
        source = ModelSource(text, str(embedded_path(text)), "")
        return ModelChoice(text, {"embedded": text}, shape_of(source))
    folder = Path(text).expanduser()
    if _is_folder(folder):
        if not (folder / "config.json").is_file():
            raise UserError(
                f"--model {text}: the folder has no config.json: write a model's folder"
            )
        name = slug(folder.resolve().name, "model")
        return ModelChoice(name, {"path": text}, shape_of(ModelSource(name, str(folder), "")))
    match = _HUB_ID.fullmatch(text)
    if match is None:
        raise UserError(
            f"--model {shortened(text)} is not a model: write a Hub id such as Qwen/Qwen3-4B, "
            f"OWNER/NAME@COMMIT, a folder, or {' or '.join(EMBEDDED)}"
        )
    hub = match[1]
    try:
        check_hub_id(hub)
    except ValueError as error:
        raise UserError(str(error)) from error
    revision = match[2] or _revision(hub)
    entry: dict[str, Any] = {"hub": hub, "revision": revision, "dtype": "bfloat16"}
    if _THINKS.match(hub):
        entry["chat_template_kwargs"] = {"enable_thinking": False}
    name = slug(hub.partition("/")[2].lower(), "model")
    return ModelChoice(name, entry, shape_of(ModelSource(name, hub, "", revision)))


def slug(text: str, default: str) -> str:
    """A valid name of an entry of the file, close to `text`."""
    name = re.sub(r"[^A-Za-z0-9_.+-]+|\.{2,}", "-", text)[:60].strip("-.+")
    return name or default


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # over-long, or with a null byte
        return False


def _revision(hub: str) -> str:
    """The commit of a Hub model: the pinned, cached or current one. Raises UserError."""
    if hub in REVISIONS:
        return REVISIONS[hub]
    reference = hub_cache(hub) / "refs" / "main"
    if reference.is_file() and _COMMIT.fullmatch(cached := reference.read_text("ascii").strip()):
        return cached
    from huggingface_hub import HfApi

    try:
        commit = HfApi().model_info(hub, timeout=_TIMEOUT).sha
    except Exception as error:  # the hub's client raises many types
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(
            f"--model {hub}: its commit cannot be looked up ({reason}): write "
            f"--model {hub}@COMMIT, with the 40 hex digits of the commit on the Hub"
        ) from error
    return str(commit)
