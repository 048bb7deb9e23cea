"""Packs the libraries for a GPU machine without network, for `benchmarks/offline.py`.

The packages are those that Decile needs, in the versions of this environment, as wheels for the
Python and platform of the other machine. torch is never packed, because it must fit the machine's
driver. A list of installed packages (`pip freeze` on that machine) makes the kit smaller: a package
is left out if its version satisfies all requirements; a name without a version counts as
satisfying.
"""

import argparse
import fnmatch
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.command_line import benchmark_parser

ROOT = Path(__file__).parents[1]
PART_BYTES = 60 * 2**20
# Not used without a browser, a compiler or a test runner.
UNUSED = (
    "bin/*",
    "*.pyi",
    "mlflow/server/js/*",
    "pandas/tests/*",
    "pyarrow/include/*",
    "pyarrow/libarrow_flight*",
    "pyarrow/tests/*",
    "ray/dashboard/client/*",
    "ray/jars/*",
    "scipy/*/tests/*",
    "sklearn/*/tests/*",
)


def main() -> None:
    """Download, check and pack."""
    arguments = options()
    present = {"torch": ""} | (read_freeze(arguments.present) if arguments.present else {})
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    target = environment(arguments.python, arguments.machine)
    packages = closure(project["dependencies"], present, target)
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        install(packages, arguments, Path(folder) / "wheels", site)
        if problems := list(unsatisfied(site, packages, present, target)):
            raise SystemExit("the kit is not complete:\n  " + "\n  ".join(problems))
        prune(site)
        print(f"{len(packages)} packages; packing takes minutes", flush=True)
        parts = pack(site, arguments.out)
    content = {"python": arguments.python, "packages": packages, "parts": parts}
    (arguments.out / "kit.json").write_text(json.dumps(content, indent=1) + "\n")
    for name, part in parts.items():
        print(f"{arguments.out / name}: {part['bytes'] / 2**20:.1f} MiB")


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("gpu_kit", __doc__)
    parser.add_argument("--python", default="3.12", help="of the other machine (default 3.12)")
    parser.add_argument("--machine", default="x86_64", help="its processor (default x86_64)")
    parser.add_argument(
        "--present", type=Path, metavar="FILE", help="the output of its `pip freeze`"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / ".gpu", metavar="FOLDER", help="default .gpu"
    )
    return parser.parse_args()


def read_freeze(file: Path) -> dict[str, str]:
    """Versions by package in the output of `pip freeze`; "" if there is none."""
    lines = (line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines())
    pairs = (line.partition("==") for line in lines if line and not line.startswith("-"))
    return {canonicalize_name(name.partition("@")[0].strip()): v for name, _, v in pairs}


def environment(python: str, machine: str) -> dict[str, str]:
    """The values of environment markers on the other machine, which runs Linux."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def closure(
    requirements: Iterable[str], present: Mapping[str, str], target: Mapping[str, str]
) -> dict[str, str]:
    """Versions by package, as installed here, of all needed packages that are not present."""
    todo = [Requirement(each) for each in requirements]
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name not in versions and satisfies(present.get(name), requirement):
            continue
        versions[name] = importlib.metadata.version(name)
        declared = importlib.metadata.requires(name) or []
        for extra in {"", *requirement.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                todo += needs(declared, target, extra)
    return dict(sorted(versions.items()))


def satisfies(version: str | None, requirement: Requirement) -> bool:
    """Whether a present version satisfies the requirement; "" is unknown."""
    return version == "" or (
        version is not None and requirement.specifier.contains(version, prereleases=True)
    )


def needs(declared: Iterable[str], target: Mapping[str, str], extra: str) -> list[Requirement]:
    """The declared requirements that apply on the other machine with this extra."""
    parsed = (Requirement(each) for each in declared)
    values = {**target, "extra": extra}
    return [r for r in parsed if r.marker is None or r.marker.evaluate(values)]


def install(
    packages: Mapping[str, str], arguments: argparse.Namespace, wheels: Path, site: Path
) -> None:
    """Download wheels for the other machine and unpack them into `site`."""
    glibc = [f"manylinux_2_{n}_{arguments.machine}" for n in range(39, 4, -1)]
    older = [f"manylinux{n}_{arguments.machine}" for n in ("2014", "2010", "1")]
    target = [f"--python-version={arguments.python}", "--implementation=cp", "--no-deps"]
    target += ["--only-binary=:all:", *(f"--platform={name}" for name in (*glibc, *older))]
    pip = [sys.executable, "-m", "pip", "--quiet"]
    pins = [f"{name}=={version}" for name, version in packages.items()]
    subprocess.run([*pip, "download", *target, f"--dest={wheels}", *pins], check=True)
    files = [str(file) for file in sorted(wheels.glob("*.whl"))]
    options = [f"--target={site}", "--no-index", "--no-compile"]
    subprocess.run([*pip, "install", *target, *options, *files], check=True)


def unsatisfied(
    site: Path,
    packages: Mapping[str, str],
    present: Mapping[str, str],
    target: Mapping[str, str],
) -> Iterator[str]:
    """Requirements in the wheels' metadata that neither the kit nor the machine satisfies."""
    installed = {
        canonicalize_name(each.metadata["Name"]): each
        for each in importlib.metadata.distributions(path=[str(site)])
    }
    yield from (f"{name} has no wheel" for name in packages if name not in installed)
    for name, distribution in installed.items():
        for requirement in needs(distribution.requires or [], target, ""):
            needed = canonicalize_name(requirement.name)
            version = installed[needed].version if needed in installed else present.get(needed)
            if not satisfies(version, requirement):
                yield f"{name} needs {requirement}, there is {version or 'none'}"


def prune(site: Path) -> None:
    """Delete files that no figure needs."""
    for file in sorted(site.rglob("*")):
        name = file.relative_to(site).as_posix()
        if file.is_file() and any(fnmatch.fnmatch(name, pattern) for pattern in UNUSED):
            file.unlink()


def pack(site: Path, out: Path, size: int = PART_BYTES) -> dict[str, Any]:
    """Pack a folder into parts of at most `size` bytes, which are read one after the other."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("kit-*.tar.xz"):
        old.unlink()
    whole = out / "kit.tmp"
    with tarfile.open(whole, "w:xz", preset=6) as archive:
        archive.add(site, ".")
    parts: dict[str, Any] = {}
    with whole.open("rb") as file:
        while data := file.read(size):
            name = f"kit-{len(parts):02}.tar.xz"
            (out / name).write_bytes(data)
            parts[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    whole.unlink()
    return parts


if __name__ == "__main__":
    main()
