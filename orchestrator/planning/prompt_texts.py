"""The texts of whole prompts, to count their tokens. Chat template tokens are not counted."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow.compute as pc

from tasks import Prompt, Task
from tasks.prompt_table import Ints, PromptTable


def most_bytes(prompts: PromptTable, task: Task) -> Ints:
    """The bytes of each prompt: an upper bound of its tokens, so that few need counting."""
    around = max(
        sum(len(message["content"].encode()) for message in each.messages("{question}"))
        for each in task.mixed_tasks or [task]
    )
    return np.asarray(pc.binary_length(prompts.column("question")).to_numpy() + around)


def prompt_texts(prompts: Iterable[Prompt], task: Task) -> Iterator[str]:
    """All messages of each prompt."""
    for prompt in prompts:
        messages = task.messages_of(prompt.question, prompt.info)
        yield "\n".join(message["content"] for message in messages)
