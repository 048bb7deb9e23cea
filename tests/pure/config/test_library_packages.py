"""Settings of TRL and transformers that need a package, found in their installed sources."""

import ast
from collections.abc import Iterator
from pathlib import Path

from orchestrator.config import library_settings
from orchestrator.config.library_settings import PACKAGES, declared, set_by_trl

FILES = {
    "trl": ("trainer/*grpo*.py", "trainer/base_*.py", "generation/*.py"),
    "transformers": ("trainer*.py", "training_args.py", "integrations/*.py"),
}
# Refused without a line in PACKAGES, because their objects are constructed before the probe
# (`training.settings_check`), or because Decile's own pins allow no version that lacks them.
CONSTRUCTED = {"optim"}
PINNED = {"use_transformers_continuous_batching", "parallelism_config"}


def functions() -> Iterator[ast.FunctionDef]:
    for package, patterns in FILES.items():
        folder = library_settings._folder(package, None)
        assert folder
        for file in (file for pattern in patterns for file in folder.glob(pattern)):
            for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    yield node


def lacks_package(node: ast.AST) -> bool:
    raised = node.exc if isinstance(node, ast.Raise) else None
    name = raised.func if isinstance(raised, ast.Call) else raised
    return isinstance(name, ast.Name) and name.id in ("ImportError", "ModuleNotFoundError")


def named(node: ast.AST, names: set[str]) -> set[str]:
    """The names that are read as an attribute, called, or quoted in a text, below a node."""
    found = set()
    for each in ast.walk(node):
        match each:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                found |= {name} & names
            case ast.Constant(value=str() as text):
                found |= {name for name in names if f"`{name}`" in text}
    return found


def test_every_setting_that_needs_a_package_is_known() -> None:
    settings = set(declared("grpo"))
    guards: dict[str, list[ast.Raise]] = {}
    for function in functions():
        raises = [n for n in ast.walk(function) if isinstance(n, ast.Raise) and lacks_package(n)]
        if raises and function.name != "__init__":
            guards[function.name] = raises
    need = {name for raises in guards.values() for n in raises for name in named(n, settings)}
    for function in functions():
        for node in ast.walk(function):
            if isinstance(node, ast.If):
                body = ast.Module(node.body, [])
                if any(map(lacks_package, ast.walk(body))) or named(body, {*guards}):
                    need |= named(node.test, settings)
    # Optimizers are looked up by the word that `optim` has, not under a condition.
    assert "_get_bitsandbytes_optimizer" in guards
    assert (need | {"optim"}) - {*PACKAGES} == CONSTRUCTED | PINNED
    assert {"use_vllm", "use_liger_kernel"} <= need, "the search finds what it looks for"


def test_what_trl_passes_to_generate_is_read_from_its_source() -> None:
    passed = set_by_trl()
    assert passed["max_new_tokens"] == "max_completion_length" and passed["do_sample"] == ""
    assert passed.keys() >= {"temperature", "top_p", "top_k", "eos_token_id"}
