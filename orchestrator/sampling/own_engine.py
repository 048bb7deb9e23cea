"""Names the engine of the user's own that raised an error, or returned no completions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from orchestrator.sampling.base import (
    FINISHES,
    Completion,
    Interrupted,
    Request,
    Sampler,
    SamplingError,
    SamplingSettings,
)
from tasks.user_code import describe

FORM = "return one list per request, with one Completion(text, tokens, finish) per sample index"


@contextmanager
def engine_errors(engine: type, call: str) -> Iterator[None]:
    """Turn what an engine of the user's own raises into a SamplingError with the place.

    An error of a built-in engine stays as it is.
    """
    try:
        yield
    except SamplingError:
        raise
    except (Exception, SystemExit) as error:
        if engine.__module__.startswith("orchestrator."):
            raise
        raise SamplingError(f"{title_of(engine)}: {call}() raised {describe(error)}") from error


def title_of(engine: type) -> str:
    """How messages name an engine."""
    return f"engine {engine.__module__}:{engine.__qualname__}"


def drawn(
    sampler: Sampler, requests: Sequence[Request], settings: SamplingSettings
) -> list[list[Completion]]:
    """The completions of each request. SamplingError where an engine of the user's own fails."""
    engine, interrupted = type(sampler), None
    results: Any
    try:
        with engine_errors(engine, "sample"):
            results = sampler.sample(requests, settings)
    except Interrupted as error:
        results, interrupted = error.drawn, error
    own, partial = not engine.__module__.startswith("orchestrator."), interrupted is not None
    if own and (problem := _check(results, requests, partial)):
        raise SamplingError(f"{title_of(engine)}: sample() returned {problem}: {FORM}")
    if interrupted:
        raise interrupted
    return results


def _check(results: Any, requests: Sequence[Request], partial: bool) -> str:
    """What is wrong with the completions of an engine; empty if nothing is.

    Where they are `partial`, None stands for a missing one.
    """
    if not isinstance(results, list | tuple) or len(results) != len(requests):
        return f"{_size(results)} for {len(requests)} requests"
    for request, of_prompt in zip(requests, results, strict=True):
        if not isinstance(of_prompt, list | tuple) or len(of_prompt) != len(request.samples):
            return f"{_size(of_prompt)} for {len(request.samples)} samples of a request"
        for completion in of_prompt:
            if partial and completion is None:
                continue
            if not isinstance(completion, Completion):
                return f"{completion!r:.80} as a completion"
            text, tokens, finish = completion
            if not isinstance(text, str) or type(tokens) is not int or finish not in FINISHES:
                return f"{completion!r:.160}"
    return ""


def _size(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, list | tuple) else type(value).__name__
