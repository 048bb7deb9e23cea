"""The commands of `decile` and their options. What each does is in `commands`.

A parser error is one line that says what to write instead, with an example of the command.
"""

import argparse
import re
from collections.abc import Callable, Sequence
from copy import copy
from math import inf
from pathlib import Path
from typing import Any, NoReturn, get_args

from orchestrator import __version__
from orchestrator.cli import commands
from orchestrator.config.wording import replacement
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
        """Refuse unknown arguments here, in the command's own parser, which has its options.

        The parser of all commands also passes the rest of the line to this method.
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
        """Raise UserError with what to write instead, in place of argparse's message."""
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


def marker(text: str) -> str:
    """A marker of `task: file`, or a reference to a function, for argparse."""
    from tasks.marking.golds import Marker

    known = get_args(Marker)
    if text not in known and ":" not in text:
        raise argparse.ArgumentTypeError(
            f"{shortened(text, 40)}: write {', '.join(known)} or package.module:function"
        )
    return text


class Option:
    """An option or a positional argument: its names in one text, and its settings for argparse.

    group: the title under which the help of a command shows it.
    """

    def __init__(
        self,
        names: str,
        text: str | None = None,
        convert: Callable[[str], Any] | None = None,
        metavar: str | None = None,
        *,
        group: str = "",
        **settings: Any,
    ) -> None:
        settings |= {"help": text, "type": convert, "metavar": metavar}
        self.names = names.split()
        self.group = group
        self.settings = {name: value for name, value in settings.items() if value is not None}

    def but(self, text: str = "", **settings: Any) -> "Option":
        """The same option for a command in which its help or another setting differs."""
        other = copy(self)
        other.settings = self.settings | settings
        if text:
            other.settings["help"] = text
        return other


def flag(name: str, text: str, group: str = "") -> Option:
    """An option without a value."""
    return Option(name, text, group=group, action="store_true")


def column(name: str, text: str) -> Option:
    """An option that names a column of the input."""
    return Option(name, f"column of {text}", metavar="COLUMN")


class Command:
    """A command of `decile`: its function, its line in the list, an example, and its options."""

    def __init__(
        self,
        name: str,
        run: Callable[[argparse.Namespace], int],
        text: str,
        example: str,
        *options: Option,
    ) -> None:
        self.name = name
        self.run = run
        self.text = text
        self.example = example
        self.options = options


_MAX_RESOURCES = 100_000  # as in the file; its module is heavy to import
_MAX_PRICE = 1_000_000  # of a GPU-hour
_GROWS_TO = (
    "that an autoscaling cluster can grow to (default: those present, which the option does not "
    "limit)"
)
_NESTED = "; a.b is a value inside a"

# Options of several commands.
FILE = Option("file", "YAML file of the experiment, such as experiments.yaml", Path)
EXPERIMENT = Option("-e --experiment", "name of the experiment (default: the only one in the file)")
STORAGE = Option("--storage", "folder or URI (default: the file's `storage`)")
CPUS = Option("--cpus", f"CPUs {_GROWS_TO}", integer(1, _MAX_RESOURCES))
GPUS = Option("--gpus", f"GPUs {_GROWS_TO}", integer(1, _MAX_RESOURCES))
WAIT = flag("--wait", "wait for another driver of the experiment in this storage to end")
JSON = flag("--json", "print as JSON")
OUT = Option("--out --output", None, Path, "FILE")
FORCE = flag("--force", "replace an existing file")
MODEL = Option("--model", "which of the experiment's models")
DATASET = Option("--dataset", "which of the experiment's datasets")
TASK = Option("--task", "see decile ls tasks, or package.module:Class", required=True)
OPTION = Option("--option", action="append", default=[], metavar="NAME=VALUE")
TASK_OPTION = "option of the task, such as {}; repeat for several"
ON_CLUSTER = (FILE, EXPERIMENT, STORAGE, CPUS, GPUS)
# Options of commands that read run logs.
OF_LOGS = (
    Option(
        "--correct",
        "reward function, or column of 0 and 1, that says which completions are correct",
        metavar="NAME",
    ),
    OUT.but("HTML page to write"),
    FORCE,
    JSON.but("print all values as JSON"),
)
# Options that choose from the probe of an experiment.
PROBED = (
    FILE.but("YAML file of the experiment", nargs="?"),
    EXPERIMENT,
    Option("--policy", "a policy of the file, or one that decile ls policies prints"),
    Option("--budget", "share (0.1) or number (80) of the prompts (default: the experiment's)"),
    Option(
        "--seed",
        "seed for breaking ties (default: the experiment's first; 0 with --probe)",
        integer(0, 2**32 - 1),
    ),
    Option(
        "--difficulty",
        "what the policy ranks by: gold, agreement, model:NAME, or a file of difficulty or scores "
        "by prompt_id (default: as in the experiment; gold with --probe)",
        metavar="SOURCE",
    ),
    MODEL,
    DATASET,
    STORAGE,
)
_EXAMPLE = "experiments.yaml -e quickstart"
AUDITS = "audits of the marker"
_DATA = "JSONL, JSON, Parquet, CSV or TSV, also .gz; files, or globs such as 'data/*.jsonl'"

COMMANDS = (
    Command(
        "init",
        commands.init,
        "write an experiments.yaml for your own questions",
        "--train mine.jsonl --model Qwen/Qwen3-4B --yes",
        Option("--train", f"questions with answers: {_DATA}", metavar="FILE", nargs="+"),
        Option(
            "--test",
            "test questions (default: a part of --train is held out)",
            metavar="FILE",
            nargs="+",
        ),
        Option(
            "--model",
            "Hub id, OWNER/NAME@COMMIT, folder, .gguf file, or embedded model",
            metavar="NAME",
        ),
        column("--question", "the questions (default: recognized)"),
        column("--answer", "the answers (default: recognized)"),
        Option(
            "--answers",
            "optional: rows may lack an answer, to be added later (default: required)",
            choices=["required", "optional"],
            default="required",
        ),
        Option(
            "--marker",
            "number, letter, expression, text or a function, package.module:function (default: "
            "what fits the answers)",
            marker,
            "MARKER",
        ),
        Option(
            "--problems",
            "also list duplicates, conflicts and test questions in this .jsonl file, for "
            "correction",
            Path,
            "FILE",
        ),
        Option("--corrections", "read the corrected list", metavar="FILE"),
        Option(
            "--max-prompt-tokens", "leave out longer training prompts", integer(1, 1_000_000), "N"
        ),
        Option(
            "--duplicates",
            "what to do with prompts that repeat another one",
            choices=["keep", "first", "drop"],
        ),
        Option(
            "--conflicts",
            "what to do with questions with several gold answers",
            choices=["keep", "drop"],
        ),
        flag(
            "--clean-test",
            "also apply --max-prompt-tokens, --duplicates and --conflicts to test questions",
        ),
        flag("--drop-overlap", "leave out prompts that are test questions"),
        OUT.but("file to write (default: experiments.yaml)", default=Path("experiments.yaml")),
        FORCE,
        flag("--yes", "take defaults instead of asking"),
    ),
    Command(
        "plan",
        commands.plan,
        "validate an experiment and show what it would run; runs nothing",
        _EXAMPLE,
        *ON_CLUSTER,
        JSON,
        Option("--gpu", "GPU type whose memory cells must fit (default: this machine's)"),
        Option("--gpu-price", "price of one GPU-hour", number(0, _MAX_PRICE)),
        flag("--pilot", "measure the speed of each model here, in one update; stores nothing"),
    ),
    Command(
        "fetch",
        commands.fetch,
        "download an experiment's models and data sets from the hub",
        _EXAMPLE,
        FILE,
        EXPERIMENT,
        JSON,
    ),
    Command(
        "run",
        commands.run,
        "run whatever is not finished, then print the results",
        _EXAMPLE,
        *ON_CLUSTER,
        WAIT,
        Option("--tracking-uri", "MLflow server (default: SQLite in the storage)"),
        JSON,
    ),
    Command(
        "probe",
        commands.probe,
        "run only the probes, then write a page about the pool",
        _EXAMPLE,
        *ON_CLUSTER,
        WAIT,
        OUT.but("the page to write (default: probe-EXPERIMENT.html)"),
        JSON,
    ),
    Command(
        "evaluate",
        commands.evaluate,
        "evaluate a model, adapter or checkpoint for decile compare",
        f"{_EXAMPLE} --adapter out --out after.parquet",
        *ON_CLUSTER,
        JSON,
        WAIT,
        MODEL,
        DATASET,
        Option("--adapter", "a LoRA adapter of PEFT", metavar="FOLDER"),
        Option(
            "--checkpoint",
            "full weights in the Hub's layout, as TRL's save_model writes them",
            metavar="FOLDER",
        ),
        OUT.but("Parquet file to write, for decile compare", required=True),
        FORCE,
    ),
    Command(
        "report",
        commands.report,
        "print the results and write a self-contained HTML page",
        _EXAMPLE,
        FILE,
        EXPERIMENT,
        STORAGE,
        OUT.but("the page to write (default: report-EXPERIMENT.html)"),
        JSON,
    ),
    Command(
        "select",
        commands.select,
        "select a subset from an experiment's probe, or from a difficulty table",
        "--probe probe-NAME-KEY.parquet --policy hard --budget 0.1 --out subset.parquet",
        *PROBED,
        Option(
            "--probe",
            "difficulty table, Parquet file of samples, or folder of a probe; repeat for several",
            Path,
            action="append",
        ),
        OPTION.but("option of the policy, such as low=0.2; repeat for several"),
        OUT.but("Parquet file to write (default, for an experiment: in its storage)"),
        Option(
            "--to-label",
            "JSONL or CSV to write for annotators: the chosen prompts without a gold answer",
            Path,
            "FILE",
        ),
        flag("--test", "with --to-label: list the test questions without a gold answer"),
        FORCE,
        JSON.but("print the selection's record as JSON"),
    ),
    Command(
        "mark",
        commands.mark,
        "mark stored completions, or audit a marker",
        "--task gsm8k --input completions.jsonl --out marked.parquet",
        TASK,
        OPTION.but(TASK_OPTION.format("marker=letter")),
        Option(
            "--marking",
            "how answers are extracted (default: lenient)",
            choices=["lenient", "strict"],
            default="lenient",
        ),
        Option(
            "--input",
            "JSONL or Parquet with columns answer, and completion or completions",
            Path,
            required=True,
        ),
        Option(
            "--answer",
            "reference answers (default: answer, or a known name)",
            metavar="COLUMN",
        ),
        Option(
            "--completions",
            f"completions (default: the column with a known name){_NESTED}",
            metavar="COLUMN",
        ),
        OUT.but("JSONL or Parquet to write (not needed by an audit)"),
        FORCE,
        JSON.but("print the counts as JSON"),
        Option(
            "--against",
            "also mark with this task, and show where both differ",
            metavar="TASK",
            group=AUDITS,
        ),
        Option(
            "--against-option",
            "option of that task, such as marking=strict; repeat for several",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            group=AUDITS,
        ),
        Option(
            "--examples",
            "completions to print for each pair of different outcomes (default: 3)",
            integer(0, 10_000),
            "N",
            default=3,
            group=AUDITS,
        ),
        flag(
            "--attack",
            "mark answers that must not pass instead, built from the file's gold answers and "
            "questions",
            AUDITS,
        ),
    ),
    Command(
        "import",
        commands.import_,
        "import external completions or solve rates as a probe",
        "completions.jsonl --task gsm8k --out probe.parquet",
        Option("source", "completions, solve rates, or a run folder of another tool", Path),
        Option("--layout", "input layout (default: auto-detect)"),
        column("--question", f"the questions, as texts or chat messages{_NESTED}"),
        column("--answer", f"the reference answers, or worked solutions{_NESTED}"),
        column("--completions", f"the model's completions{_NESTED}"),
        column("--prompt-id", f"Decile's prompt ids{_NESTED}"),
        column("--rate", f"the solve rates{_NESTED}"),
        column("--successes", f"the numbers of correct samples{_NESTED}"),
        Option(
            "--samples",
            "samples per prompt behind the solve rates, or their column",
            _samples,
            "N|COLUMN",
        ),
        Option("--model", "model to import, if the source has several"),
        flag("--pool", "keep only rows of the task's training prompts"),
        TASK,
        OPTION.but(TASK_OPTION.format("marker=number")),
        OUT.but("file to write", required=True),
        FORCE,
        JSON.but("print a summary as JSON"),
    ),
    Command(
        "export",
        commands.export,
        "export a subset in another trainer's format",
        "--subset subset.parquet --task gsm8k --layout verl --out train.parquet",
        *PROBED,
        Option("--subset", "file from decile select", Path),
        Option(
            "--layout", "jsonl, trl, verl, verifiers, openrlhf, prime-rl, open-instruct or nemo-gym"
        ),
        Option(
            "--order",
            "order of the rows: easy, hard, learnable, random, or a moving mean pass rate, such as "
            "gaussian:0.8:0.2 (default: the policy's)",
        ),
        Option(
            "--spread",
            "give every part of the file the same shares of sources, tiers or bands of pass rates",
            metavar="COLUMN",
        ),
        flag("--card", "also write OUT.card.md, which describes the data set"),
        Option("--texts", "import that holds the questions (default: the task's own)", Path),
        TASK.but(required=False),
        OPTION.but(TASK_OPTION.format("marker=number")),
        OUT.but("file to write"),
        FORCE,
        JSON.but("print a summary as JSON"),
    ),
    Command(
        "compare",
        commands.compare,
        "compare item-level results of any tool, paired by question",
        "hard='logs/hard*.eval' random='logs/random*.eval' --out compare.html",
        Option(
            "arms",
            "a log of Inspect, samples of lm-eval, a dump of verl, JSONL, JSON, CSV or Parquet, a "
            "cell's folder, a folder, or a glob; without NAME=, the arm has the file's name",
            nargs="+",
            metavar="NAME=FILES",
        ),
        column("--id", "the question's id (for logs: question, to pair by its text)"),
        column("--score", "correctness, or a score from 0 to 1"),
        column("--seed", "the run's seed"),
        column("--sample", "the sample's number"),
        column(
            "--group",
            "the group of related questions (of logs: in metadata, or lm-eval's document)",
        ),
        Option("--metric", "scorer of Inspect or metric of lm-eval, if logs have several"),
        flag("--models-are-seeds", "an arm may have several models: training seeds of one recipe"),
        OUT.but("HTML page to write"),
        FORCE,
        JSON.but("print all values as JSON"),
    ),
    Command(
        "diagnose",
        commands.diagnose,
        "diagnose GRPO runs of any trainer from their logs",
        "outputs/grpo --out diagnosis.html",
        Option(
            "logs",
            "a run's folder (TRL, verl, prime-rl, NeMo-RL, rLLM, AReaL, open-instruct), one of "
            "its files, a storage or a cell of Decile, or a table with update, prompt and reward",
            nargs="+",
            metavar="LOG",
        ),
        *OF_LOGS,
    ),
    Command(
        "replay",
        commands.replay,
        "show what each policy would have chosen in recorded runs, and how much of it was live "
        "later",
        "outputs/grpo --policy hard --policy learnable --out replay.html",
        Option(
            "logs",
            "what diagnose reads, or a table of pass rates by prompt and visit",
            nargs="*",
            metavar="LOG",
        ),
        Option(
            "--policy",
            "policy, such as hard or 'band: {low: 0.2, high: 0.8}'; repeat for several (default: "
            "all that choose by pass rates)",
            action="append",
            default=[],
        ),
        Option(
            "--budget", "share (0.1) or number (80) of the prompts (default: 0.1)", default="0.1"
        ),
        Option(
            "--rates",
            "compare two models instead: two files with prompt_id and a pass rate, or one with two "
            "columns such as avg@8_MODEL",
            metavar="FILE",
            nargs="+",
        ),
        flag("--online", "also replay all policies that choose during training (takes a minute)"),
        Option(
            "--visits",
            "choose by the first N visits of each prompt (default: 1)",
            integer(1, 1_000),
            "N",
            default=1,
        ),
        Option(
            "--probe",
            "choose by this difficulty table, with the prompt ids of the logs",
            metavar="FILE",
        ),
        *OF_LOGS,
    ),
    Command(
        "ls",
        commands.ls,
        "list tasks, policies, models or experiments",
        "policies",
        Option("what", choices=["tasks", "policies", "models", "experiments"]),
        FILE.but(
            "file that declares the models and experiments (default: experiments.yaml)",
            nargs="?",
            default=Path("experiments.yaml"),
        ),
        JSON,
    ),
    Command(
        "doctor",
        commands.doctor,
        "check this machine, Ray, MLflow and every marker",
        "experiments.yaml",
        FILE.but("also check the datasets of this file", nargs="?"),
        EXPERIMENT.but("check only this experiment's datasets"),
        Option("--tracking-uri", "also check this MLflow server"),
        flag("--gpu", "also train on a GPU, kill and resume (takes a few minutes)"),
        STORAGE.but("check the files of this storage instead, and nothing else"),
        flag(
            "--repair",
            "with --storage: set aside files that fail verification; decile run recreates them",
        ),
        JSON,
    ),
    Command(
        "ui",
        commands.ui,
        "serve the MLflow UI on loopback",
        "--storage ./runs",
        STORAGE.but("storage of the results (default: ./runs)", default="./runs"),
        Option(
            "--port",
            "port to listen on (default: 5000, or a free one if that is in use)",
            integer(1, 65_535),
        ),
    ),
)


def build_parser() -> argparse.ArgumentParser:
    """Every command and its options."""
    parser = Parser(
        prog="decile",
        description="Which tenth of your prompts should GRPO train on?",
        example="plan experiments.yaml -e quickstart",
    )
    parser.add_argument("--version", action="version", version=f"decile {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for each in COMMANDS:
        command = subparsers.add_parser(
            each.name, help=each.text, description=each.text, example=each.example
        )
        command.set_defaults(name=each.name, command=each.run, example=command.example)
        groups: dict[str, argparse._ActionsContainer] = {"": command}
        for option in each.options:
            group = groups.get(option.group) or command.add_argument_group(option.group)
            groups[option.group] = group
            group.add_argument(*option.names, **option.settings)
    return parser
