"""Tasks, policies and engines by name: built in, installed, or a reference to a user's own."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from orchestrator.plugins.name_clashes import name_clash
from orchestrator.plugins.user_code import describe


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or an empty string if no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True)
class Registry:
    """The plugins of one kind.

    kind: their name in messages. group: the entry points of packages that install them. builtin:
    references `package.module:attribute` by name. form: what to write for a reference. refused:
    raised for an unknown name.
    """

    kind: str
    group: str
    builtin: Mapping[str, str]
    form: str
    refused: type[Exception]

    def names(self) -> list[str]:
        """Built-in names, then installed ones, each sorted."""
        return [*self.builtin, *sorted(entry_points(group=self.group).names - self.builtin.keys())]

    def reference(self, name: str) -> str:
        """The `package.module:attribute` of a name; references are returned unchanged."""
        target = name if ":" in name else self.builtin.get(name)
        if target is None:
            installed = list(entry_points(group=self.group, name=name))
            if not installed:
                raise self.refused(
                    f"unknown {self.kind} {name!r:.80}: write one of {', '.join(self.names())}, "
                    f"or {self.form}{suggest(name, self.names())}"
                )
            target = installed[0].value
        if not all(part.isidentifier() for part in target.replace(":", ".", 1).split(".")):
            raise self.refused(f"{self.kind} {name!r:.80} is not a reference: write {self.form}")
        return target

    def find(self, name: str) -> Any:
        """The class, function or object of a name or reference."""
        target = self.reference(name)
        try:
            return EntryPoint(name, target, self.group).load()
        except (Exception, SystemExit) as error:  # a custom module may raise anything
            advice = f"correct the module, or write another {self.kind}"
            if isinstance(error, ModuleNotFoundError) and str(error.name) in target:
                advice = (
                    "run the command in the module's folder, install it, or write another "
                    f"{self.kind}"
                )
            raise self.refused(
                f"{self.kind} {name!r} cannot be imported: {describe(error)}; "
                f"{name_clash(error, target) or advice}"
            ) from error
