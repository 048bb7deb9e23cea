"""Every documented `pip install` is resolved against the package index; nothing is installed."""

import re
import tomllib

from install_lines_cases import LINES, image_lines, implied
from paths import ROOT


def test_lines_are_found_on_the_pages_that_have_them() -> None:
    assert any("constraints-vllm.txt" in line and "vllm" in line for line in LINES)
    assert any("decile[pages]" in line for line in LINES), "inside a sentence"
    assert len(image_lines()) == 2 and "auth,4bit,vllm" in image_lines()[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        extra
        for line in LINES
        for each in re.findall(r"\[(.*?)\]", line)
        for extra in each.split(",")
    ]
    assert {*named} <= {*project["optional-dependencies"]}, (
        "pip only warns of an extra it does not know"
    )
    assert implied("-c constraints.txt -e .") and implied('-c constraints.txt -e ".[4bit]"')
    assert not implied("-c constraints.txt 'decile[server]'") and not implied(image_lines()[0])


def test_both_constraint_files_agree_but_for_what_vllm_pins() -> None:
    pins, for_vllm = (
        dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / name).read_text(), re.M))
        for name in ("constraints.txt", "constraints-vllm.txt")
    )
    assert pins.keys() <= for_vllm.keys()
    assert {name for name in pins if pins[name] != for_vllm[name]} == {
        "fastapi",
        "numpy",
        "protobuf",
    }
