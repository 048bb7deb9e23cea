"""The parser's errors: one line that says what to write instead, with an example of the command."""

import argparse
import re
from collections.abc import Sequence
from math import inf
from typing import Any, NoReturn

from orchestrator.config.corrections import suggest
from orchestrator.storage.errors import UserError, shortened


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError instead of printing its usage and exiting."""

    def __init__(self, *arguments: Any, example: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.example = f"{self.prog} {example}".rstrip()
        if example:
            self.epilog = f"example: {self.example}"

    def parse_known_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Unknown arguments are refused here, by the command's own parser, which knows its options.

        The parser of all commands hands the rest of the line to this method, too.
        """
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            name = next((text for text in unknown if text.startswith("-")), unknown[0])
            option = name.partition("=")[0]
            near = suggest(option, self._option_string_actions)
            raise UserError(
                f"unknown argument {shortened(name)}: remove it{near} "
                f"({self.prog} --help lists the options)"
            )
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Raise UserError with what to write instead of argparse's words."""
        message = message.removeprefix("argument ")
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


def integer(low: int, high: int) -> Any:
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


def number(low: float, high: float) -> Any:
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
