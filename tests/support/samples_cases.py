"""What the tests of samples share."""

from orchestrator.sampling.base import Completion
from tasks import Prompt, make_prompt


def texts(*texts: str) -> list[Completion]:
    return [Completion(text, 1, "stop") for text in texts]


def golds(*answers: str) -> list[Prompt]:
    return [make_prompt("t", "", answer, "") for answer in answers]
