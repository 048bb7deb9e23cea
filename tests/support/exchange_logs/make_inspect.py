"""Evaluate invented sums with inspect_ai 0.3.285 and its mock model.

pip install inspect_ai==0.3.285, then: python make_inspect.py OUT; inspect.eval and inspect.json of
this folder are its two logs. Token counting would download a vocabulary, so words are counted.
"""

import sys
from types import SimpleNamespace

import tiktoken
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message

words = SimpleNamespace(encode=lambda text, **_: text.split())
tiktoken.get_encoding = lambda name: words
tiktoken.encoding_for_model = lambda name: words
chat = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content="What is 3+3?")]
LONG = "What is 5+5? Only the number counts. " + "Take your time. " * 8
DATA = MemoryDataset(
    [
        Sample(input="What is 2+2?", target="4", id=1),
        Sample(input=chat, target=["6", "six"], id="b/2"),
        Sample(input=LONG, target="10", id=3),
    ]
)


def outputs():
    texts = ["\\boxed{4}", "\\boxed{6}", "so", "\\boxed{5}", "no", "The answer is 10"]
    return [
        ModelOutput.from_content(
            "mockllm/model", text, stop_reason="max_tokens" if text == "so" else "stop"
        )
        for text in texts
    ]


for log_format in ("eval", "json"):
    eval(
        Task(
            dataset=DATA, solver=[system_message("Think."), generate()], scorer=match(numeric=True)
        ),
        model=get_model("mockllm/model", custom_outputs=outputs()),
        epochs=2 if log_format == "eval" else 1,
        log_model_api=False,
        log_dir=sys.argv[1],
        log_format=log_format,
        display="none",
        max_samples=1,
        max_connections=1,
    )
