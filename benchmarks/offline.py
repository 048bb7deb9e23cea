"""Runs Python with the libraries of `benchmarks/gpu_kit.py`, on a machine without network.

`python3 benchmarks/offline.py -m benchmarks.gpu_figures …` unpacks the parts in .gpu/ once, into
.gpu/site-packages. It only needs Python.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Unpack if needed, then run."""
    paths = [str(unpacked(ROOT / ".gpu")), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def unpacked(kit: Path) -> Path:
    """The folder of the unpacked kit. Ends the program if the kit is damaged or incomplete."""
    try:
        content = json.loads((kit / "kit.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{kit / 'kit.json'}: {error}; run make gpu-kit, and copy {kit.name}/ here")
    have = "{}.{}".format(*sys.version_info)
    if have != content["python"]:
        sys.exit(f"the kit is for Python {content['python']}, this is {have}: {sys.executable}")
    # dill, which datasets uses, pickles modules by value unless they are in a folder of this name.
    site, identity = kit / "site-packages", json.dumps(content["parts"])
    marker = site / "kit.json"
    if marker.is_file() and marker.read_text("utf-8") == identity:
        return site
    data = b"".join(checked(kit / name, part["sha256"]) for name, part in content["parts"].items())
    fresh = Path(tempfile.mkdtemp(prefix="site-", dir=kit))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        archive.extractall(fresh, filter="data")
    (fresh / "kit.json").write_text(identity, "utf-8")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(site)
    fresh.replace(site)
    return site


def checked(file: Path, sha256: str) -> bytes:
    """The content of a part."""
    try:
        data = file.read_bytes()
    except OSError:
        sys.exit(f"{file} is missing: copy all parts of the kit")
    if hashlib.sha256(data).hexdigest() != sha256:
        sys.exit(f"{file} is damaged, or from a different kit: copy it again, with kit.json")
    return data


if __name__ == "__main__":
    main()
