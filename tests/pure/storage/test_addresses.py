"""Strings that look like the address of a storage are one, or refused: never a local folder."""

from pathlib import Path

import pytest

from orchestrator.storage.addresses import SCHEMES, scheme_of, why_no_storage
from orchestrator.storage.errors import StoreError
from orchestrator.storage.store import Store


@pytest.mark.parametrize(
    ("address", "instead"),
    [
        ("s3:/bucket/x", "s3://bucket/x"),
        (Path("s3://bucket/x"), "s3://bucket/x"),
        ("gs:/bucket", "gs://bucket"),
        ("file:/tmp/x", "file:///tmp/x"),
        ("dbfs:/x", "s3://"),
        ("hf://owner/name", "s3://"),
        ("https://host/x", "s3://"),
        (r"C:\runs", "a folder"),
        ("C:/runs", "a folder"),
    ],
)
def test_what_looks_like_an_address_makes_no_local_folder(
    address: str | Path, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as refusal:
        Store(address)
    assert str(address) in str(refusal.value) and instead in str(refusal.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("address", ["runs", "/tmp/runs", "a:b/c", "2024:/x", "~/x", "./s3:/x"])
def test_paths_have_no_scheme(address: str) -> None:
    assert scheme_of(address) == "" and why_no_storage(address) == ""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_addresses_of_known_schemes_are_storages(scheme: str) -> None:
    assert why_no_storage(f"{scheme}://bucket/x") == "" and scheme_of(f"{scheme}://b") == scheme
