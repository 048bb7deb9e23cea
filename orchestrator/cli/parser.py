"""The commands of `decile` and their options. What each does is in `commands`.

An error of the parser is one line that says what to write instead, with an example of the command.
"""

import argparse
import re
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator import __version__
from orchestrator.cli import commands
from orchestrator.config.corrections import replacement
from orchestrator.plugins.registry import suggest
from orchestrator.storage.errors import UserError, shortened


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError instead of printing its usage and exiting."""

    def __init__(self, *arguments: Any, example: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.example = f"{self.prog} {example}".rstrip()
        if example:
            self.epilog = f"example: {self.example}"

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Unknown arguments are refused here, by the command's own parser, which knows its options.

        The parser of all commands hands the rest of the line to this method, too.
        """
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            name = next((text for text in unknown if text.startswith("-")), unknown[0])
            option = name.partition("=")[0]
            advice = replacement(option, self._option_string_actions)
            raise UserError(
                f"unknown argument {shortened(name)}: {advice} "
                f"({self.prog} --help lists the options)"
            )
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Raise UserError with what to write instead of argparse's words."""
        message = message.removeprefix("argument ").replace("--out/--output", "--out")
        name, _, problem = message.partition(": ")
        example = f", for example {self.example}"
        if missing := re.match("the following arguments are required: (.*)", message, re.DOTALL):
            raise UserError(f"missing {missing[1]}: write {self.example}")
        if choice := re.match(r"invalid choice: (.*?) \(choose from (.*)\)$", problem, re.DOTALL):
            words = re.findall(r"[\w-]+", choice[2])
            near = suggest(choice[1].strip("'\""), words)
            word = choice[1][:80].strip("'\"")
            raise UserError(f"{name} {word!r} is unknown: write one of {', '.join(words)}{near}")
        if problem.startswith("expected"):
            raise UserError(f"{name} needs a value: write it after the option{example}")
        if problem.startswith("ignored explicit"):
            raise UserError(f"{name} takes no value: write the option alone{example}")
        if options := re.match(r"ambiguous option: (.*) could match (.*)", message):
            raise UserError(f"{options[1][:80]} is ambiguous: write one of {options[2]}")
        raise UserError(message)


def integer(low: int, high: int) -> Callable[[str], int]:
    """A converter for an option that takes an integer in these limits."""

    def convert(text: str) -> int:
        # ASCII digits only, and few: int() of 5,000 digits raises.
        valid = re.fullmatch(r"[-+]?[0-9]{1,20}", text, re.ASCII)
        if not valid or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(
                f"{shortened(text, 40)}: write an integer from {low:,} to {high:,}"
            )
        return int(text)

    return convert


def _samples(text: str) -> int | str:
    """A number of samples, or the name of the column that has them."""
    return integer(1, 2**31 - 1)(text) if re.fullmatch(r"[-+]?\d+", text) else text


def number(low: float, high: float) -> Callable[[str], float]:
    """A converter for an option that takes a finite number in these limits."""

    def convert(text: str) -> float:
        try:
            value = float(text) if text.isascii() else inf
        except ValueError:
            value = inf
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"{shortened(text, 40)}: write a number from {low:,} to {high:,}"
            )
        return value

    return convert


if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Parser]

Command = Callable[[argparse.Namespace], int]
_MAX_RESOURCES = 100_000  # as in the file; its module is heavy to import
_MAX_PRICE = 1_000_000  # of a GPU-hour
_MARK_EXAMPLE = "--task gsm8k --input completions.jsonl --out marked.parquet"


def marker(text: str) -> str:
    """A marker of `task: file`, or a reference to a function, for argparse."""
    known = ("number", "letter", "expression", "text")
    if text not in known and ":" not in text:
        raise argparse.ArgumentTypeError(
            f"{shortened(text, 40)}: write {', '.join(known)} or package.module:function"
        )
    return text


def build_parser() -> argparse.ArgumentParser:
    """Every command and its options."""
    parser = Parser(
        prog="decile",
        description="Which tenth of your prompts should GRPO train on?",
        example="plan experiments.yaml -e quickstart",
    )
    parser.add_argument("--version", action="version", version=f"decile {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_init(subparsers)
    _add_experiment_commands(subparsers)
    _add_select(subparsers)
    _add_mark(subparsers)
    _add_exchange(subparsers)
    _add_compare(subparsers)
    _add_diagnose(subparsers)
    ls = _add(
        subparsers, "ls", commands.ls, "list tasks, policies, models or experiments", "policies"
    )
    ls.add_argument("what", choices=["tasks", "policies", "models", "experiments"])
    ls.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=Path("experiments.yaml"),
        help="file that declares the models and experiments (default: experiments.yaml)",
    )
    doctor = _add(
        subparsers,
        "doctor",
        commands.doctor,
        "check this machine, Ray, MLflow and every marker",
        "experiments.yaml",
    )
    doctor.add_argument("file", nargs="?", type=Path, help="also check the datasets of this file")
    doctor.add_argument("-e", "--experiment", help="check only this experiment's datasets")
    doctor.add_argument("--tracking-uri", help="also check this MLflow server")
    doctor.add_argument(
        "--gpu", action="store_true", help="also train on a GPU, kill and resume (some minutes)"
    )
    doctor.add_argument(
        "--storage", help="check the files of this storage instead, and nothing else"
    )
    doctor.add_argument(
        "--repair",
        action="store_true",
        help="with --storage: set aside files that fail verification; decile run makes them again",
    )
    ui = _add(subparsers, "ui", commands.ui, "serve the MLflow UI on loopback", "--storage ./runs")
    ui.add_argument("--storage", default="./runs", help="storage of the results (default: ./runs)")
    ui.add_argument(
        "--port",
        type=integer(1, 65_535),
        help="port to listen on (default: 5000, or a free one where that is in use)",
    )
    return parser


def _add(subparsers: "Subparsers", name: str, command: Command, text: str, example: str) -> Parser:
    parser = subparsers.add_parser(name, help=text, description=text, example=example)
    parser.set_defaults(command=command)
    return parser


def _add_init(subparsers: "Subparsers") -> None:
    parser = _add(
        subparsers,
        "init",
        commands.init,
        "write an experiments.yaml for your own questions",
        "--train mine.jsonl --model Qwen/Qwen3-4B --yes",
    )
    files = "JSONL, JSON, Parquet, CSV or TSV, also .gz; files, or globs such as 'data/*.jsonl'"
    parser.add_argument(
        "--train", metavar="FILE", nargs="+", help=f"questions with answers: {files}"
    )
    parser.add_argument(
        "--test",
        metavar="FILE",
        nargs="+",
        help="test questions (default: a part of --train is held out)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="Hub id, OWNER/NAME@COMMIT, folder, .gguf file, or embedded model",
    )
    for column in ("question", "answer"):
        parser.add_argument(
            f"--{column}", metavar="COLUMN", help=f"column of the {column}s (default: recognized)"
        )
    parser.add_argument(
        "--answers",
        choices=["required", "optional"],
        default="required",
        help="optional: rows may lack an answer, which comes later (default: required)",
    )
    parser.add_argument(
        "--marker",
        type=marker,
        metavar="MARKER",
        help="number, letter, expression, text or a function, package.module:function "
        "(default: what fits the answers)",
    )
    _add_cleaning(parser)
    _add_out(parser, "file to write (default: experiments.yaml)", default=Path("experiments.yaml"))
    parser.add_argument("--yes", action="store_true", help="take defaults instead of asking")
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def _add_cleaning(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--problems",
        type=Path,
        metavar="FILE",
        help="also list duplicates, conflicts and test questions in this .jsonl file, to correct",
    )
    parser.add_argument("--corrections", metavar="FILE", help="read the corrected list")
    parser.add_argument(
        "--max-prompt-tokens",
        type=integer(1, 1_000_000),
        metavar="N",
        help="leave out longer training prompts",
    )
    parser.add_argument(
        "--duplicates", choices=["keep", "first", "drop"], help="of prompts that repeat another one"
    )
    parser.add_argument(
        "--conflicts", choices=["keep", "drop"], help="of questions with several gold answers"
    )
    parser.add_argument(
        "--drop-overlap", action="store_true", help="leave out prompts that are test questions"
    )


def _add_experiment_commands(subparsers: "Subparsers") -> None:
    for name, command, text in (
        ("plan", commands.plan, "validate an experiment and show what it would run; runs nothing"),
        ("fetch", commands.fetch, "download an experiment's models and data sets from the hub"),
        ("run", commands.run, "run whatever is not finished, then print the results"),
        ("probe", commands.probe, "run only the probes, then write a page about the pool"),
        ("evaluate", commands.evaluate, "evaluate a model, adapter or checkpoint for compare"),
        ("report", commands.report, "print the results and write a self-contained HTML page"),
    ):
        example = "experiments.yaml -e quickstart"
        if name == "evaluate":
            example += " --adapter out --out after.parquet"
        parser = _add(subparsers, name, command, text, example)
        parser.add_argument(
            "file", type=Path, help="YAML file of the experiment, such as experiments.yaml"
        )
        parser.add_argument(
            "-e", "--experiment", help="name of the experiment (default: the only one of the file)"
        )
        if name != "fetch":
            parser.add_argument("--storage", help="folder or URI (default: the file's `storage`)")
        if name not in ("fetch", "report"):
            for option in ("cpus", "gpus"):
                parser.add_argument(
                    f"--{option}",
                    type=integer(1, _MAX_RESOURCES),
                    help=f"{option.upper()[:-1]}s that an autoscaling cluster can grow to "
                    "(default: those present, which it does not limit)",
                )
        if name in ("plan", "fetch", "evaluate"):
            parser.add_argument("--json", action="store_true", help="print as JSON")
        if name == "plan":
            parser.add_argument(
                "--gpu", help="GPU type for the estimates, such as h100 (default: this machine's)"
            )
            parser.add_argument(
                "--gpu-price", type=number(0, _MAX_PRICE), help="price of one GPU-hour"
            )
        if name in ("run", "probe", "evaluate"):
            parser.add_argument(
                "--wait",
                action="store_true",
                help="if another driver runs the experiment in this storage, wait for its end",
            )
        if name == "run":
            parser.add_argument(
                "--tracking-uri", help="MLflow server (default: SQLite in the storage)"
            )
        if name == "evaluate":
            _add_evaluated(parser)
        if name in ("probe", "report"):
            _add_out(parser, f"the page to write (default: {name}-EXPERIMENT.html)")


def _add_evaluated(parser: Parser) -> None:
    """What an evaluation is of, and where its results go."""
    parser.add_argument("--model", help="which of the experiment's models")
    parser.add_argument("--dataset", help="which of the experiment's datasets")
    parser.add_argument("--adapter", metavar="FOLDER", help="a LoRA adapter of PEFT")
    parser.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="full weights in the Hub's layout, as TRL's save_model writes them",
    )
    _add_out(parser, "Parquet file to write, for decile compare", required=True)


def _add_select(subparsers: "Subparsers") -> None:
    parser = _add(
        subparsers,
        "select",
        commands.select,
        "select a subset from an experiment's probe, or from a difficulty table",
        "--probe probe-NAME-KEY.parquet --policy hard --budget 0.1 --out subset.parquet",
    )
    _add_probed(parser)
    parser.add_argument(
        "--probe",
        type=Path,
        action="append",
        help="difficulty table, Parquet file of samples, or folder of a probe; repeat for several",
    )
    _add_options(parser, "policy", "low=0.2")
    _add_out(parser, "Parquet file to write (of an experiment: default in its storage)")
    parser.add_argument(
        "--to-label",
        type=Path,
        metavar="FILE",
        help="JSONL or CSV to write for annotators: the chosen prompts without a gold answer",
    )
    parser.add_argument(
        "--test", action="store_true", help="with --to-label: the test questions without one"
    )
    parser.add_argument("--json", action="store_true", help="print the selection's record as JSON")


def _add_probed(parser: Parser) -> None:
    """The options that select from the probe of an experiment."""
    parser.set_defaults(example=parser.example)
    parser.add_argument("file", nargs="?", type=Path, help="YAML file of the experiment")
    parser.add_argument(
        "-e", "--experiment", help="name of the experiment (default: the only one of the file)"
    )
    parser.add_argument("--policy", help="of the file, or see decile ls policies")
    parser.add_argument(
        "--budget", help="share (0.1) or number (80) of the prompts (default: the experiment's)"
    )
    parser.add_argument(
        "--seed",
        type=integer(0, 2**32 - 1),
        help="seed for breaking ties (default: the experiment's first; with --probe 0)",
    )
    parser.add_argument(
        "--difficulty",
        metavar="SOURCE",
        help="what the policy ranks by: gold, agreement, model:NAME, or a file of difficulty or "
        "scores by prompt_id (default: as in the experiment; with --probe gold)",
    )
    parser.add_argument("--model", help="which of the experiment's models")
    parser.add_argument("--dataset", help="which of the experiment's datasets")
    parser.add_argument("--storage", help="folder or URI (default: the file's `storage`)")


def _add_mark(subparsers: "Subparsers") -> None:
    text = "mark stored completions, or audit a marker"
    parser = _add(subparsers, "mark", commands.mark, text, _MARK_EXAMPLE)
    parser.set_defaults(example=parser.example)
    _add_task(parser, "marker=letter")
    parser.add_argument(
        "--marking",
        choices=["lenient", "strict"],
        default="lenient",
        help="how answers are extracted (default: lenient)",
    )
    parser.add_argument(
        "--input",
        type=Path,
        required=True,
        help="JSONL or Parquet with columns answer, and completion or completions",
    )
    parser.add_argument(
        "--answer", metavar="COLUMN", help="reference answers (default: answer, or a known name)"
    )
    parser.add_argument(
        "--completions",
        metavar="COLUMN",
        help="completions (default: the column with a known name); a.b is a value inside a",
    )
    _add_out(parser, "JSONL or Parquet to write (not needed by an audit)")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    audits = parser.add_argument_group("audits of the marker")
    audits.add_argument(
        "--against", metavar="TASK", help="also mark with this task, and show where both differ"
    )
    audits.add_argument(
        "--against-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of that task, such as marking=strict; repeat for several",
    )
    audits.add_argument(
        "--examples",
        type=integer(0, 10_000),
        default=3,
        metavar="N",
        help="completions to print for each pair of different outcomes (default: 3)",
    )
    audits.add_argument(
        "--attack",
        action="store_true",
        help="mark answers that must not pass instead, built from the file's gold answers and "
        "questions",
    )


def _add_exchange(subparsers: "Subparsers") -> None:
    importer = _add(
        subparsers,
        "import",
        commands.import_,
        "import external completions or solve rates as a probe",
        "completions.jsonl --task gsm8k --out probe.parquet",
    )
    importer.add_argument(
        "source", type=Path, help="completions, solve rates, or a run folder of another tool"
    )
    importer.add_argument("--layout", help="input layout (default: auto-detect)")
    for option, text in (
        ("question", "the questions, as texts or chat messages"),
        ("answer", "the reference answers, or worked solutions"),
        ("completions", "the model's completions"),
        ("prompt-id", "Decile's prompt ids"),
        ("rate", "the solve rates"),
        ("successes", "the numbers of correct samples"),
    ):
        importer.add_argument(
            f"--{option}", metavar="COLUMN", help=f"column of {text}; a.b is a value inside a"
        )
    importer.add_argument(
        "--samples",
        type=_samples,
        metavar="N|COLUMN",
        help="samples per prompt behind the solve rates, or their column",
    )
    importer.add_argument("--model", help="model to import, if the source has several")
    importer.add_argument(
        "--pool", action="store_true", help="keep only rows of the task's training prompts"
    )
    exporter = _add(
        subparsers,
        "export",
        commands.export,
        "export a subset in another trainer's format",
        "--subset subset.parquet --task gsm8k --layout verl --out train.parquet",
    )
    _add_probed(exporter)
    exporter.add_argument("--subset", type=Path, help="file from decile select")
    exporter.add_argument(
        "--layout",
        help="jsonl, trl, verl, verifiers, openrlhf, prime-rl, open-instruct or nemo-gym",
    )
    exporter.add_argument(
        "--card", action="store_true", help="also write OUT.card.md, which describes the data set"
    )
    exporter.add_argument(
        "--texts", type=Path, help="import that holds the questions (default: the task's own)"
    )
    for parser in (importer, exporter):
        required = parser is importer  # an export of an experiment needs others
        _add_task(parser, "marker=number", required=required)
        _add_out(parser, "file to write", required=required)
        parser.add_argument("--json", action="store_true", help="print a summary as JSON")


def _add_out(parser: argparse.ArgumentParser, text: str, **settings: Any) -> None:
    parser.add_argument("--out", "--output", type=Path, metavar="FILE", help=text, **settings)


def _add_compare(subparsers: "Subparsers") -> None:
    parser = _add(
        subparsers,
        "compare",
        commands.compare,
        "compare item-level results of any tool, paired by question",
        "hard='logs/hard*.eval' random='logs/random*.eval' --out compare.html",
    )
    parser.add_argument(
        "arms",
        nargs="+",
        metavar="NAME=FILES",
        help="a log of Inspect, samples of lm-eval, a dump of verl, JSONL, JSON, CSV or Parquet, "
        "a cell's folder, a folder, or a glob; without NAME= the file's name is the arm's",
    )
    for option, text in (
        ("id", "the question's id (for logs: question, to pair by its text)"),
        ("score", "correctness, or a score from 0 to 1"),
        ("seed", "the run's seed"),
        ("sample", "the sample's number"),
        ("group", "the group of related questions (of logs: in metadata, or lm-eval's document)"),
    ):
        parser.add_argument(f"--{option}", metavar="COLUMN", help=f"column of {text}")
    parser.add_argument(
        "--metric", help="scorer of Inspect or metric of lm-eval, if logs have several"
    )
    parser.add_argument(
        "--models-are-seeds",
        action="store_true",
        help="an arm may have several models: training seeds of one recipe",
    )
    _add_out(parser, "HTML page to write")
    parser.add_argument("--json", action="store_true", help="print all values as JSON")


def _add_diagnose(subparsers: "Subparsers") -> None:
    parser = _add(
        subparsers,
        "diagnose",
        commands.diagnose,
        "say what is wrong with GRPO runs of any trainer, from their logs",
        "outputs/grpo --out diagnosis.html",
    )
    parser.add_argument(
        "logs",
        nargs="+",
        metavar="LOG",
        help="a run's folder (TRL, verl, prime-rl, NeMo-RL, rLLM, AReaL, open-instruct), one of "
        "its files, a storage or a cell of Decile, or a table with update, prompt and reward",
    )
    parser.add_argument(
        "--correct",
        metavar="NAME",
        help="reward function or column of 0 and 1 that says which completions are correct",
    )
    _add_out(parser, "HTML page to write")
    parser.add_argument("--json", action="store_true", help="print all values as JSON")


def _add_task(parser: argparse.ArgumentParser, example: str, *, required: bool = True) -> None:
    parser.add_argument(
        "--task", required=required, help="see decile ls tasks, or package.module:Class"
    )
    _add_options(parser, "task", example)


def _add_options(parser: argparse.ArgumentParser, owner: str, example: str) -> None:
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"option of the {owner}, such as {example}; repeat for several",
    )
