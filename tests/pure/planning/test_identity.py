"""What identifies a local model: the same hash with and without the cache of hashes."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.storage import identity
from orchestrator.storage.identity import file_identity, folder_identity

CONTENT = {"config.json": b"{}", "model.safetensors": b"weights", "notes.md": b"not read"}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder, whose files were written long ago; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(identity, "SETTLED_NS", -(10**12))
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose content is hashed."""
    names: list[str] = []
    original = hashlib.file_digest

    def file_digest(stream: Any, name: str) -> Any:
        names.append(Path(stream.name).name)
        return original(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    return names


def expected(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        digest.update(name.encode() + hashlib.sha256((folder / name).read_bytes()).digest())
    return f"folder:{digest.hexdigest()[:16]}"


def cache(folder: Path) -> Path:
    return folder.parent / "cache" / "decile" / "hashes.json"


def test_every_file_is_hashed_once(model: Path, hashed: list[str]) -> None:
    first = folder_identity(model)
    assert hashed == ["config.json", "model.safetensors"]
    assert folder_identity(model) == first == expected(model)
    weights = model / "model.safetensors"
    content = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert file_identity(weights) == f"file:{content[:16]}"
    assert len(hashed) == 2


def test_a_changed_file_is_noticed_even_with_its_old_size_and_date(
    model: Path, hashed: list[str]
) -> None:
    first, weights = folder_identity(model), model / "model.safetensors"
    before = weights.stat()
    time.sleep(0.05)
    weights.write_bytes(b"changed")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert weights.stat().st_size == before.st_size
    assert folder_identity(model) == expected(model) != first
    assert hashed[2:] == ["model.safetensors"]
    other = model / "other"
    other.write_bytes(b"replace")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(weights)
    assert folder_identity(model) == expected(model)
    assert hashed[3:] == ["model.safetensors"]


def test_a_file_that_may_change_again_unnoticed_is_hashed_every_time(
    model: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "SETTLED_NS", 3600 * 10**9)
    assert folder_identity(model) == folder_identity(model) == expected(model)
    assert len(hashed) == 4 and not cache(model).exists()


def test_a_file_that_changes_while_it_is_read_is_hashed_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = hashlib.file_digest

    def file_digest(stream: Any, name: str) -> Any:
        digest = original(stream, name)
        Path(stream.name).write_bytes(b"written meanwhile")
        return digest

    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", file_digest)
        first = folder_identity(model)
    assert folder_identity(model) == expected(model) != first


def _edited(file: Path) -> None:
    content = hashlib.sha256(CONTENT["model.safetensors"]).hexdigest()
    file.write_text(file.read_text().replace(content, "0" * 64))


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("damage", [_edited, _fifo])
def test_a_damaged_cache_is_ignored(model: Path, hashed: list[str], damage: Any) -> None:
    folder_identity(model)
    damage(cache(model))
    assert folder_identity(model) == expected(model)
    assert len(hashed) == 4


def test_a_cache_of_another_user_is_ignored(
    model: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_identity(model)
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert folder_identity(model) == expected(model)
    assert len(hashed) == 4


def test_a_cache_that_cannot_be_written_costs_only_time(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model.parent / "cache").write_text("a file")
    assert folder_identity(model) == folder_identity(model) == expected(model)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", _without_home)
    assert folder_identity(model) == expected(model)


def _without_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_files_that_are_gone_leave_the_cache(model: Path) -> None:
    folder_identity(model)
    (model / "config.json").unlink()
    (model / "tokenizer.json").write_bytes(b"{}")
    folder_identity(model)
    assert "config.json" not in cache(model).read_text()
    assert [file.name for file in cache(model).parent.iterdir()] == ["hashes.json"]
