"""Nouns agree with their numbers: `1 prompt`, never `1 prompts`."""

import ast
import re

from import_graph import nodes, source_modules

NOUNS = (
    "prompts rows questions samples cells labels groups completions updates seeds runs files logs"
)
NOUNS += " policies answers columns tests hours seconds models claims probes parts checks"
PLURAL = re.compile(rf" ({'|'.join(NOUNS.split())})\b")

# Module -> what stands there before such a word, and is a name before a verb, or never one.
OTHERS = {
    "cluster.ray_internals": ("used[1]",),  # `node ADDRESS runs out of memory`
    "decile.rewards": ("len(marks)",),  # more than TOLERATED_FAILURES
    "decile.trl": ("self._shared",),  # updates of a generation, if an update may be in its middle
    "orchestrator.config.experiment": ("shared",),  # likewise
    "orchestrator.config.probe": ("k",),  # more than the samples, which are at least one
    "orchestrator.config.vllm_rollouts": ("cells",),  # of several cells
    "orchestrator.evaluation.diagnosis": (
        "kind",
        "self.updates",
    ),  # `longer completions have the higher reward`
    "orchestrator.optional.exchange.imports": ("most",),  # more than `fewest`
    "orchestrator.probing.checks": ("len(BOMBS)",),  # a table of several
    "orchestrator.report.sentences": ("range_text(least.seeds, most.seeds, most_seeds)",),
    "orchestrator.sampling.gguf_models": ("int(parts.contents())",),
    "orchestrator.selection.labelling": ("ties.pool",),  # more than are chosen
    "orchestrator.storage.lease": ("self._experiment",),  # `NAME runs`
    "tasks.sources.hub": ("constants.ENDPOINT",),  # `URL answers with status …`
}


def test_a_noun_in_the_plural_follows_no_number_that_may_be_one() -> None:
    """Where it does, `counted(number, "prompt")` writes both; constants are above one."""
    wrong = []
    for module, file in source_modules().items():
        for text in (node for node in nodes(file) if isinstance(node, ast.JoinedStr)):
            for value, after in zip(text.values, text.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                    continue
                written = ast.unparse(value.value)
                if written in OTHERS.get(module, ()) or written.isupper():
                    continue
                if PLURAL.match(str(after.value)):
                    wrong.append(f"{module}:{text.lineno}: {written}{after.value:.20}")
    assert wrong == []
