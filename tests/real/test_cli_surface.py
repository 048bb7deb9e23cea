"""Every command with missing, wrong and hostile arguments: one line, code 2, never a traceback."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutations import SMALL
from paths import ROOT
from processes import LIMIT, hang_limit
from remedies import problems

from orchestrator.cli.main import main


@pytest.mark.parametrize(
    ("words", "stdout", "code"),
    [
        (["ls", "policies"], "/dev/full", 1),
        (["plan", "experiments.yaml", "-e", "quickstart", "--json"], "/dev/full", 1),
        (["plan", "experiments.yaml", "-e", "x\udcff"], None, 2),
        (["ls", "policies"], "pipe", 141),
    ],
)
def test_standard_output_that_cannot_be_written(
    tmp_path: Path, words: list[str], stdout: str | None, code: int
) -> None:
    shutil.copy(ROOT / "experiments.yaml", tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    target = writer if stdout == "pipe" else os.open(stdout or os.devnull, os.O_WRONLY)
    command = [sys.executable, "-m", "orchestrator", *words]
    done = subprocess.run(
        command, stdout=target, stderr=subprocess.PIPE, cwd=tmp_path, timeout=LIMIT
    )
    assert done.returncode == code
    error = done.stderr.decode()
    assert "Traceback" not in error and "Exception" not in error
    if code == 141:
        assert error == ""
    else:
        assert error.count("\n") == 1
        assert "free some" in error if code == 1 else not problems(error)


@pytest.mark.parametrize(
    ("closed", "words", "code", "lines"),
    [
        (">&-", "plan experiments.yaml -e quickstart", 0, 0),
        ("<&- >&- 2>&-", "plan experiments.yaml -e quickstart", 0, 0),
        ("<&-", "init", 2, 1),
        ("2>&-", "ls nothing", 2, 0),
    ],
)
def test_a_closed_standard_stream_discards_what_is_written(
    tmp_path: Path, closed: str, words: str, code: int, lines: int
) -> None:
    shutil.copy(ROOT / "experiments.yaml", tmp_path)
    command = f'exec "$0" -m orchestrator {words} {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT,
    )
    assert done.returncode == code
    assert (done.stdout, done.stderr.count("\n")) == ("", lines)


def test_files_do_not_take_the_number_of_a_closed_stream() -> None:
    code = """
import os, sys
from orchestrator.cli import main
main._open_closed_streams()
numbers = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
os.write(int(sys.argv[1]), repr([*numbers, *map(os.get_inheritable, numbers)]).encode())
"""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    command = 'exec "$0" -c "$1" "$2" <&- >&- 2>&-'
    words = ["sh", "-c", command, sys.executable, code, str(writer)]
    subprocess.run(words, pass_fds=[writer], cwd=ROOT, timeout=LIMIT, check=True)
    assert os.read(reader, 100) == b"[0, 1, 2, True, True, True]"


# A valid call of every command; each test spoils one of its arguments. No word is run as it is.
CALLS = {
    "plan": "plan e.yaml -e small --storage runs --cpus 2 --gpus 1 --gpu h100 --gpu-price 2",
    "fetch": "fetch e.yaml -e small --json",
    "run": "run e.yaml -e small --storage runs --cpus 2 --gpus 1",
    "probe": "probe e.yaml -e small --storage runs --cpus 2 --gpus 1 --out page.html",
    "evaluate": "evaluate e.yaml -e small --model tiny --dataset small --storage runs --cpus 2 "
    "--gpus 1 --out after.parquet",
    "report": "report e.yaml -e small --storage runs --out page.html",
    "select": "select --probe t.parquet --policy hard --budget 1 --seed 0 --out chosen.parquet",
    "mark": "mark --task gsm8k --marking strict --input in.jsonl --output out.jsonl",
    "import": "import in.jsonl --task gsm8k --out p.parquet --layout completions --samples 4",
    "export": "export --subset s.parquet --task arithmetic --layout jsonl --out o.jsonl",
    "compare": "compare in.jsonl b=b.jsonl --out page.html --metric m --id question",
    "diagnose": "diagnose in.jsonl --out page.html --correct m",
    "init": "init --train in.jsonl --model tiny --yes --marker number --output new.yaml",
    "ls": "ls models e.yaml",
    "ui": "ui --storage runs --port 5000",
    "doctor": "doctor e.yaml -e small",
}
# Files that a command reads, and options whose values have limits.
INPUTS = {
    **dict.fromkeys(("plan", "fetch", "run", "probe", "evaluate", "report"), "e.yaml"),
    **dict.fromkeys(("ls", "doctor"), "e.yaml"),
    **dict.fromkeys(("mark", "import", "init", "compare", "diagnose"), "in.jsonl"),
    "select": "t.parquet",
    "export": "s.parquet",
}
OUTPUTS = {
    "probe": "page.html",
    "evaluate": "after.parquet",
    "report": "page.html",
    "select": "chosen.parquet",
    "mark": "out.jsonl",
    "import": "p.parquet",
    "export": "o.jsonl",
    "compare": "page.html",
    "diagnose": "page.html",
    "init": "new.yaml",
}
NUMBERS = ("--cpus", "--gpus", "--gpu-price", "--seed", "--samples", "--port", "--budget")
WORDS = ("--gpu", "--marking", "--layout", "--marker", "--policy", "--task")
PLUGINS = {
    "raises": "raise RuntimeError('one\\ntwo')",
    "exits": "raise SystemExit(3)",
    "syntax": "1 +",
    "empty": "",
    "rubbish": "attribute = 3",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a small experiment, a table and completions."""
    text = SMALL.replace("storage: ./runs", f"storage: {tmp_path / 'runs'}")
    (tmp_path / "e.yaml").write_text(text)
    (tmp_path / "in.jsonl").write_text('{"question": "1+1", "answer": "2", "completion": "2"}\n')
    (tmp_path / "b.jsonl").write_text('{"question": "1+1", "correct": true}\n')
    table = pa.table({"prompt_id": ["a", "b"], "pass_rate": [0.1, 0.9]})
    pq.write_table(table, tmp_path / "t.parquet")
    pq.write_table(table, tmp_path / "s.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield tmp_path
    assert not (tmp_path / "runs").exists(), "invalid input wrote to the storage"


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line that refuses the arguments."""
    with hang_limit():
        assert main(arguments) == 2, arguments
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("decile: "), printed.err
    assert not problems(lines[0]), (arguments, problems(lines[0]), lines[0])
    assert printed.out == ""
    return lines[0]


def replaced(command: str, old: str, new: str) -> list[str]:
    """The valid call with one word replaced."""
    words = CALLS[command].split()
    assert old in words
    return [new if word == old else word for word in words]


@pytest.mark.parametrize("command", CALLS)
def test_arguments_that_are_missing_or_unknown(folder: Path, capsys, command: str) -> None:
    words = CALLS[command].split()
    if command not in ("doctor", "ui", "init"):  # these take defaults, or ask
        refused(capsys, [command])
    refused(capsys, [*words, "--unknown"])
    refused(capsys, [*words, "--unknown=3"])
    refused(capsys, [*words, "extra", "arguments"])
    refused(capsys, [*words, "\udcff"])
    for position, word in enumerate(words):
        if word.startswith("-") and word not in ("--yes", "--json"):
            refused(capsys, words[: position + 1])  # an option without its value
    misspelt = next((word for word in words if word.startswith("--")), None)
    if misspelt:
        line = refused(capsys, [f"{misspelt}x" if word == misspelt else word for word in words])
        assert "did you mean" in line or "missing" in line


@pytest.mark.parametrize("command", INPUTS)
def test_inputs_that_are_no_such_file(folder: Path, capsys, command: str) -> None:
    suffix = Path(INPUTS[command]).suffix
    (folder / f"folder{suffix}").mkdir()
    (folder / f"empty{suffix}").write_bytes(b"")
    (folder / f"binary{suffix}").write_bytes(bytes(range(256)) * 9)
    content = (folder / INPUTS[command]).read_bytes()
    (folder / f"torn{suffix}").write_bytes(content[: len(content) // 2] + b"\xff")
    for name in ("none", "folder", "empty", "binary", "torn", "x" * 300, "a\0b", "\udcff"):
        refused(capsys, replaced(command, INPUTS[command], f"{name}{suffix}"))


@pytest.mark.parametrize("command", OUTPUTS)
def test_outputs_that_cannot_be_written(folder: Path, capsys, command: str) -> None:
    output = OUTPUTS[command]
    suffix = Path(output).suffix
    pipe, target = folder / f"pipe{suffix}", folder / f"directory{suffix}"
    os.mkfifo(pipe)
    target.mkdir()
    too_long, null = f"{'x' * 300}{suffix}", f"a\0{suffix}"
    for name in (pipe.name, target.name, f"e.yaml/x{suffix}", too_long, null):
        line = refused(capsys, replaced(command, output, name))
        assert "output" in line
    assert pipe.is_fifo() and target.is_dir()


def option_calls(options: tuple[str, ...]) -> list[tuple[str, str]]:
    return [
        (command, option)
        for command, call in CALLS.items()
        for option in options
        if option in call.split()
    ]


@pytest.mark.parametrize(("command", "option"), option_calls(NUMBERS))
def test_numbers_outside_their_limits(folder: Path, capsys, command: str, option: str) -> None:
    words = CALLS[command].split()
    place = words.index(option) + 1
    for value in ("-1", "nan", "inf", "x", "", "1e400", "9" * 5_000, "\u0665", "0x10", "true"):
        refused(capsys, [*words[:place], value, *words[place + 1 :]])


@pytest.mark.parametrize(("command", "option"), option_calls(WORDS))
def test_words_that_are_unknown(folder: Path, capsys, command: str, option: str) -> None:
    words = CALLS[command].split()
    place = words.index(option) + 1
    for value in ("unknown", "", "x" * 500, "\udcff", "a b", "a\nb", ":", "a:b:c", "../x"):
        refused(capsys, [*words[:place], value, *words[place + 1 :]])


@pytest.mark.parametrize("kind", PLUGINS)
def test_modules_of_ones_own_that_fail(folder: Path, capsys, kind: str) -> None:
    (folder / f"own_{kind}.py").write_text(PLUGINS[kind])
    reference = f"own_{kind}:attribute"
    for command, old in (
        ("select", "hard"),
        ("mark", "gsm8k"),
        ("import", "gsm8k"),
        ("export", "arithmetic"),
    ):
        line = refused(capsys, replaced(command, old, reference))
        assert reference in line
    for old in ("[hard, near, tier]", "task: arithmetic", "engine: transformers"):
        new = reference if old.startswith("[") else f"{old.partition(':')[0]}: '{reference}'"
        text = SMALL.replace(old, f"['{new}']" if old.startswith("[") else new)
        (folder / "e.yaml").write_text(text)
        assert reference in refused(capsys, CALLS["plan"].split())
