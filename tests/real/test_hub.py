"""Downloads from the hub: the hub's real client and `decile fetch`, against a hub on loopback."""

import json
import resource
import runpy
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest
from hub_cases import (  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
    CARD,
    DATA,
    FOREIGN,
    MODEL,
    Decile,
    Done,
    client,
    commit_of,
    decile,
    experiments,
    file,
    hub,
    large,
    parquet,
    start,
    sums,
)
from hub_server import Hub, etag
from huggingface_hub import constants
from processes import LIMIT, free_port, hang_limit, wait_until
from remedies import problems

import tasks.sources.hub
from cluster.ending import INTERRUPTED
from orchestrator.embedded import embedded_path
from tasks.sources.hub import Repository, cache_folder

TOKEN = "hf_" + "s" * 30


def error_of(done: Done, code: int) -> str:
    """The last line of stderr, which is the only error, and has a remedy."""
    assert done.returncode == code, done.stdout + done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("decile: ") and not problems(line), (line, problems(line))
    assert "Traceback" not in done.stderr and TOKEN not in done.stdout + done.stderr
    return line


def cached_files(file: Path, kind: str, name: str) -> set[str]:
    """The files of a snapshot in the cache."""
    folder = file.parent / "home" / "hub" / f"{kind}s--{name.replace('/', '--')}" / "snapshots"
    return {
        str(path.relative_to(path.parents[len(path.relative_to(folder).parts) - 2]))
        for path in folder.rglob("*")
        if path.is_file()
    }


def leftovers(file: Path) -> list[Path]:
    """Parts of files, and links that lead nowhere."""
    cache = file.parent / "home" / "hub"
    return [p for p in cache.rglob("*") if p.suffix == ".incomplete" or not p.exists()]


def test_fetch_downloads_what_is_read_and_nothing_else(
    file: Path, hub: Hub, decile: Decile
) -> None:
    done = decile("fetch", "--json")
    assert done.returncode == 0, done.stderr
    assert cached_files(file, "model", MODEL) == {
        path.name for path in embedded_path("tiny-arithmetic").iterdir() if path.is_file()
    } - {"README.md"}
    assert cached_files(file, "dataset", DATA) == {
        "README.md",
        *(f"main/{name}-of-00002.parquet" for name in ("train-00000", "train-00001")),
        "main/test-00000-of-00001.parquet",
    }
    assert not leftovers(file)
    view = json.loads(done.stdout)
    model, data = view["repositories"]
    assert (model["names"], data["names"]) == (["far"], ["sums"])
    assert model["bytes"] == model["downloaded_bytes"] > 1_000_000
    sent = sum(request.sent for request in hub.requests if request.port == int(hub.cdn[-5:]))
    assert sent == model["bytes"] + data["bytes"] - sum(
        len(content)
        for files in hub.repositories.values()
        for name, content in next(iter(files.values())).items()
        if name.endswith((".json", ".jinja")) or (name == "README.md" and content == CARD)
    )
    hub.requests.clear()
    again = decile("fetch")
    assert again.returncode == 0 and "everything that small reads" in again.stdout
    assert not [r for r in hub.requests if "resolve" in r.path or r.path.endswith(".safetensors")]


def test_a_plan_says_what_is_missing_and_nothing_once_it_is_there(hub: Hub, decile: Decile) -> None:
    before = decile("plan")
    assert f"not downloaded: far ({MODEL}@{commit_of(hub, 'model', MODEL)})" in before.stdout
    assert "first run decile fetch experiments.yaml -e small" in before.stdout
    assert decile("fetch").returncode == 0
    after = decile("plan", "--json", offline=True)
    assert json.loads(after.stdout)["not_downloaded"] == []


@pytest.mark.parametrize("name", ["plan", "fetch", "run"])
def test_without_a_network_the_error_names_the_command(hub: Hub, decile: Decile, name: str) -> None:
    hub.url = f"http://127.0.0.1:{free_port()}"
    line = error_of(decile(name), 1 if name == "fetch" else 2)
    assert f"{hub.url}: Connection refused" in line
    assert "run decile fetch experiments.yaml -e small on a machine with internet access" in line
    offline = error_of(decile(name, offline=True), 1 if name == "fetch" else 2)
    assert "HF_HUB_OFFLINE is set" in offline


def test_a_hub_that_never_answers_takes_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timeout of a connection limits a resolver that blocks."""
    never = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: never.wait(600))
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.example")
    monkeypatch.setattr(tasks.sources.hub, "REACH_SECONDS", 0.1)
    with hang_limit():
        assert tasks.sources.hub.unreachable() == "http://hub.example: no answer in 0.1 s"
    never.set()


def test_a_run_without_the_model_starts_nothing(decile: Decile) -> None:
    assert decile("plan").returncode == 0  # the data set is there from now on
    for name in ("run", "probe"):
        line = error_of(decile(name, offline=True), 2)
        assert line.startswith("decile: experiments.yaml:") and "models.far" in line
        assert f"{MODEL}@" in line and "decile fetch experiments.yaml -e small" in line


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_download_receives_only_what_is_missing(
    file: Path, hub: Hub, decile: Decile, ending: signal.Signals
) -> None:
    weights = large(hub, 4)
    hub.delay = 0.01
    process = start(file, hub)
    wait_until(lambda: "tokenizer.json" in cached_files(file, "model", MODEL))
    wait_until(lambda: hub.bodies("model.safetensors"))
    process.send_signal(ending)
    error = process.communicate(timeout=LIMIT)[1].decode()
    if ending == signal.SIGINT:
        assert process.returncode == 130 and INTERRUPTED in error
    assert "model.safetensors" not in cached_files(file, "model", MODEL)
    hub.delay = 0
    hub.requests.clear()
    done = decile("fetch")
    assert done.returncode == 0, done.stderr
    (request,) = hub.bodies("model.safetensors")
    assert request.sent == len(weights) and not hub.bodies("tokenizer.json")


def test_a_lost_connection_continues_at_once(
    hub: Hub, decile: Decile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 20)  # it continues after a chunk
    weights = large(hub, 4)
    hub.cut["model.safetensors"] = 3 << 20
    assert decile("fetch").returncode == 0
    first, second = hub.bodies("model.safetensors")
    assert second.start > 0 and second.start + second.sent == len(weights)


def test_content_that_does_not_match_its_hash_is_never_kept(
    file: Path, tmp_path: Path, hub: Hub, decile: Decile
) -> None:
    weights = large(hub, 1)
    text = "does not match its hash on the hub was deleted (model.safetensors): run the same"
    hub.changed.add("model.safetensors")
    assert text in error_of(decile("fetch"), 1)
    hub.changed.clear()
    blob = tmp_path / "home/hub/models--org--tiny/blobs" / etag("model.safetensors", weights)
    for damaged in (bytes(len(weights)), weights[:-1]):  # on the disk
        assert not blob.exists() and not leftovers(file)
        assert decile("fetch").returncode == 0
        blob.write_bytes(damaged)
        assert text in error_of(decile("fetch"), 1)
    hub.requests.clear()
    assert decile("fetch").returncode == 0
    assert blob.read_bytes() == weights
    assert [r.path for r in hub.requests if r.sent > 10_000] == ["model.safetensors"]
    blob.write_bytes(weights[:-1])  # a plan notices
    plan = decile("plan", "--json", offline=True)
    assert [each["hub"] for each in json.loads(plan.stdout)["not_downloaded"]] == [MODEL]


def test_a_body_that_is_always_short_ends(hub: Hub, decile: Decile) -> None:
    large(hub, 1)
    hub.short["model.safetensors"] = 5000
    assert "run the same command again to continue" in error_of(decile("fetch"), 1)


def test_a_busy_hub_is_asked_again(hub: Hub, decile: Decile) -> None:
    hub.failing["model.safetensors"] = [429, 503]
    line = error_of(decile("fetch"), 1)
    assert "answers with status 503): run the same command again to continue" in line
    assert decile("fetch").returncode == 0


def test_a_gated_model_says_what_to_do_and_never_prints_the_token(hub: Hub, decile: Decile) -> None:
    hub.gated[MODEL] = TOKEN
    for token in ("", "hf_wrong"):
        line = error_of(decile("fetch", token=token), 2)
        assert "experiments.yaml:" in line and "models.far" in line
        assert f"model {MODEL} is gated: accept its license on {hub.url}/{MODEL}" in line
        assert "set HF_TOKEN to a token that may read it" in line and "hf_wrong" not in line
    assert not [r for r in hub.requests if r.sent > 10_000], "downloaded before it was refused"
    done = decile("fetch", token=TOKEN)
    assert done.returncode == 0 and TOKEN not in done.stdout + done.stderr
    elsewhere = {r.token for r in hub.requests if r.port == int(hub.cdn.rpartition(":")[2])}
    assert elsewhere == {""}, "the token went to another host"


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({"revision": "0" * 40}, f"model {MODEL} has no commit {'0' * 40}: write one of "),
        ({"hub": "org/none"}, "model org/none does not exist, or it is private: correct its id"),
    ],
)
def test_a_model_or_commit_that_does_not_exist(
    tmp_path: Path, hub: Hub, decile: Decile, model: dict[str, str], text: str
) -> None:
    experiments(tmp_path, hub, model)
    line = error_of(decile("fetch"), 2)
    assert "experiments.yaml:" in line and "models.far" in line and text in line


def test_a_model_without_safetensors(hub: Hub, decile: Decile) -> None:
    ((revision, files),) = hub.repositories["model", MODEL].items()
    rest = {name: content for name, content in files.items() if name != "model.safetensors"}
    hub.repositories["model", MODEL][revision] = rest
    line = error_of(decile("fetch"), 2)
    assert "has no .safetensors weights: write a commit or a model that has" in line


def test_a_cache_that_cannot_be_written(
    file: Path, tmp_path: Path, hub: Hub, decile: Decile
) -> None:
    (tmp_path / "home").write_text("a file")
    line = error_of(decile("fetch"), 2)
    assert f"{tmp_path}/home/hub cannot be written (Not a directory): set HF_HOME to" in line


def test_a_disk_without_space_is_noticed_before_the_download(
    tmp_path: Path, hub: Hub, decile: Decile, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    line = error_of(decile("fetch"), 2)
    assert " MiB " in line and "977 KiB free: set HF_HOME" in line
    assert not hub.bodies("model.safetensors")


def test_a_disk_that_fills_up_is_named(
    file: Path, tmp_path: Path, hub: Hub, decile: Decile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the limit would cut it
    large(hub, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))  # as a full disk
    try:
        line = error_of(decile("fetch"), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    place = tmp_path / "home" / "hub"
    assert f"cannot be written to {place} (File too large): set HF_HOME to a folder" in line
    assert not leftovers(file)
    assert decile("fetch").returncode == 0


def test_a_data_set_is_read_at_its_commit_however_many_are_cached(
    file: Path, hub: Hub, decile: Decile
) -> None:
    """Offline, `datasets` takes the latest rows that it has ever cached."""
    assert decile("fetch").returncode == 0
    first = file.read_text()
    newer = {"README.md": CARD, "main/train-00000-of-00001.parquet": sums(500, 30)}
    newer |= {"main/test-00000-of-00001.parquet": sums(900, 6)}
    revision = hub.add("dataset", DATA, newer, "f" * 40)
    file.write_text(first.replace(commit_of(hub, "dataset", DATA), revision))
    assert decile("fetch").returncode == 0
    for text, sizes in ((first, (40, 8)), (file.read_text(), (30, 6))):
        file.write_text(text)
        done = decile("plan", "--json", offline=True)
        (data,) = json.loads(done.stdout)["datasets"]
        assert (data["train"], data["test"]) == sizes


@pytest.mark.parametrize(
    "variables",
    [
        {"HF_HOME": "/a/b"},
        {"HF_HOME": "~/b"},
        {"HF_HUB_CACHE": "/c", "HF_HOME": "/a"},
        {"HUGGINGFACE_HUB_CACHE": "/d"},
        {"XDG_CACHE_HOME": "/e"},
        {"HF_HOME": "$HOME/x"},
        {},
    ],
)
def test_the_cache_is_where_the_client_looks(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "XDG_CACHE_HOME", *FOREIGN):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    theirs = runpy.run_path(str(constants.__file__))["HF_HUB_CACHE"]
    assert str(cache_folder()) == theirs


def test_files_that_are_read() -> None:
    model, data = Repository("model", "a/b", "c"), Repository("dataset", "a/b", "c")
    for name in (
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.model",
        "chat_template.jinja",
        "additional_chat_templates/tool.jinja",
    ):
        assert model.reads(name), name
    for name in ("x.bin", "x.pt", "x.pth", "x.gguf", "x.py", "onnx/config.json", "x.onnx"):
        assert not model.reads(name), name
    assert not model.reads("consolidated.safetensors")
    assert data.reads("main/train-00000-of-00001.parquet") and not data.reads("gsm8k.py")
