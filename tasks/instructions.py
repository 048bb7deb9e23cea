"""Answer instructions that other tools put into their questions. A task adds its own."""

import re

# How DAPO-Math-17k wraps each problem.
_WRAPPERS = (
    re.compile(
        r"Solve the following math problem step by step\. The last line of your response should be "
        r"of the form Answer: \$Answer \(without quotes\) where \$Answer is the answer to the "
        r"problem\.\s*(?P<question>.*?)\s*Remember to put your answer on its own line after "
        r"\"Answer:\"\.\s*",
        re.DOTALL,
    ),
)
# The last sentence of a question: Qwen's for mathematics, those of verl's data preprocessing (GSM8K
# and MATH), and the two of Decile.
_BOXED = r"(?:with)?in \\+boxed\{\}"
_SUFFIX = re.compile(
    r"\s*(?:"
    rf"(?:Please )?reason step by step, and put (?:your|the) final answer {_BOXED}"
    rf"|Let's think step by step and output the final answer {_BOXED}"
    r"|Let's think step by step and output the final answer after [\"']####[\"']"
    rf"|(?:Please )?put (?:your|the) final answer {_BOXED}"
    r")\s*\.?\s*",
    re.IGNORECASE,
)
_TAIL = 200  # characters: longer than any of these sentences


def without_instructions(question: str) -> str:
    """The question without a known tool's instruction on the form of the answer."""
    for wrapper in _WRAPPERS:
        if match := wrapper.fullmatch(question):
            return match["question"]
    start = max(0, len(question) - _TAIL)
    for match in _SUFFIX.finditer(question, start):
        if match.end() == len(question) and question[: match.start()].strip():
            return question[: match.start()].rstrip()
    return question
