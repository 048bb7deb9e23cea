"""Chats with tools as token ids, exactly as TRL's GRPOTrainer renders, parses and continues them.

A turn is appended to the token ids of the chat so far, which is never rendered again, so that
probes and training have the same tokens.
"""

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.sampling.base import Message, SamplingError, render


class ToolChat:
    """Renders the chats of one model with some tools, and reads its replies.

    `tools` are the JSON schemas of functions, as chat templates take them.
    """

    def __init__(
        self, tokenizer: Any, tools: Sequence[dict[str, Any]], chat_template_kwargs: dict[str, Any]
    ) -> None:
        """Raises SamplingError if the model's chat template or tool calls are unknown."""
        from trl.chat_template_utils import (
            add_response_schema,
            get_training_chat_template,
            is_chat_template_prefix_preserving,
            supports_tool_calling,
        )

        self.tokenizer = tokenizer
        self.tools: list[Any] = [*tools]
        self.options = dict(chat_template_kwargs)
        self._suffixes: dict[str, list[int]] = {}  # short answers are often equal
        if not tokenizer.chat_template or not supports_tool_calling(tokenizer):
            raise SamplingError(
                "the model's chat template does not render tool calls and their results: choose a "
                "model with a template that does"
            )
        try:
            if getattr(tokenizer, "response_template", None) is None:
                add_response_schema(tokenizer)
            if not is_chat_template_prefix_preserving(tokenizer):
                self.options["chat_template"] = get_training_chat_template(tokenizer)
        except ValueError as error:
            raise SamplingError(
                "TRL does not know the model's chat template, so its tool calls cannot be read: "
                "write a response_template into its tokenizer_config.json"
            ) from error

    def prompt(self, messages: list[Message]) -> list[int]:
        """Token ids of a chat up to the start of the model's turn."""
        return render(self.tokenizer, messages, {"tools": self.tools or None, **self.options})

    def parse(self, ids: Sequence[int], prefix: Sequence[int]) -> Message:
        """The model's message after the chat `prefix`, with its `tool_calls`, if any.

        A message that cannot be parsed has only its text.
        """
        from trl.chat_template_utils import parse_response

        return dict(parse_response(self.tokenizer, [*ids], prefix=[*prefix], tools=self.tools))

    def suffix(self, results: Sequence[Message]) -> list[int]:
        """Token ids that follow the model's turn: the tools' messages, and the start of the next.

        Raises SamplingError if the template then renders earlier turns differently.
        """
        key = json.dumps(results, sort_keys=True)
        if key in self._suffixes:
            return self._suffixes[key]
        call = {"type": "function", "function": {"name": results[0]["name"], "arguments": {}}}
        before: list[Message] = [
            {"role": "user", "content": "dummy"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        options = {"tokenize": True, "return_dict": False, **self.options}
        short = self.tokenizer.apply_chat_template(before, add_generation_prompt=False, **options)
        whole = self.tokenizer.apply_chat_template(
            [*before, *results], add_generation_prompt=True, **options
        )
        if (end := self.tokenizer.eos_token_id) in short:  # a line break may follow it
            short = short[: len(short) - [*reversed(short)].index(end)]
        if whole[: len(short)] != short:
            raise SamplingError("the model's chat template changes a turn once another follows")
        self._suffixes[key] = list(whole[len(short) :])
        return self._suffixes[key]
