"""A tiny model's tokenizer: byte-level BPE, trained on the questions and answers themselves."""

import random
import re
from itertools import islice
from typing import Any

from benchmarks.embedded.lesson import Lesson

SIZE = 1536
PAD, OPEN, CLOSE = "<|pad|>", "<|im_start|>", "<|im_end|>"
# Fixed phrases, words, option letters and counters are one token each: prompts get short, and
# copying one token is easy to learn. Digits are separate. Other text is split, down to bytes.
WORDS = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]|\s"
CHAT = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
# Calls are written as Qwen's models write them. The tools of a chat are left out of its text.
TOOL_CHAT = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\n' + (message.content or '') }}"
    "{%- for call in message.tool_calls or [] -%}"
    "{%- set function = call.function or call -%}{%- set given = function.arguments -%}"
    "{{ '\n' if message.content or not loop.first }}"
    '{{ \'<tool_call>\n{"name": "\' + function.name + \'", "arguments": \' }}'
    "{{ given if given is string else given | tojson }}{{ '}\n</tool_call>' }}"
    "{%- endfor -%}"
    "{{ '<|im_end|>\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": f"{OPEN}assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def corpus(lesson: Lesson[Any], seed: int, size: int) -> list[str]:
    """The texts of `size` questions, each with one completion of every style."""
    rng = random.Random(f"vocabulary/{seed}")
    texts = []
    for item in islice(lesson.vocabulary(rng), size):
        prompt = lesson.task.messages(item.question())[0]["content"]
        texts += [f"user\n{prompt}", "assistant\n" + lesson.careful(item)]
        if lesson.mixture:
            texts += [lesson.mixture.guess(item, rng), lesson.mixture.ramble(item, rng)]
    return [part for text in texts for part in re.split(r"<\|im_(?:start|end)\|>", text)]


def make_tokenizer(lesson: Lesson[Any], seed: int, size: int = 4000) -> Any:
    """A `PreTrainedTokenizerFast` of up to `SIZE` tokens, which can encode any text (bytes)."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Split(Regex(f"{lesson.phrases}|{WORDS}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bare.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[PAD, OPEN, CLOSE],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(corpus(lesson, seed, size), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, pad_token=PAD, eos_token=CLOSE)
    tokenizer.padding_side, tokenizer.model_max_length = "left", 1024
    tokenizer.chat_template = TOOL_CHAT if lesson.tools else CHAT
    tokenizer.response_template = RESPONSE if lesson.tools else None
    tokenizer.clean_up_tokenization_spaces = False
    return tokenizer
