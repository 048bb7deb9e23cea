"""Chat prompts: a task's templates by preset, and the user's settings around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, str]


@dataclass(frozen=True)
class Template:
    """One prompt template: the user's turn with `{question}` in it.

    `chat_template_kwargs` are passed to the model's chat template (thinking off, for instance).
    """

    text: str
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def render(self, question: str) -> str:
        """The user's turn; braces in the question are left alone."""
        return self.text.replace("{question}", question)


NO_THINKING: Mapping[str, Any] = {"enable_thinking": False}


def boxed_templates(what: str) -> Mapping[str, Template]:
    r"""Templates that ask for the final `what` in `\boxed{}`: our own, and the paper's."""
    plain = f"{{question}}\nReason step by step, and put the final {what} within \\boxed{{}}."
    paper = "{question}.\nPut the final answer within \\boxed{}."
    return {"plain": Template(plain), "paper": Template(paper, NO_THINKING)}


@dataclass(frozen=True)
class PromptSettings:
    """A dataset's chat settings in YAML: `prompt: {preset, system, few_shot}`."""

    preset: str = "plain"
    system: str | None = None
    few_shot: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(
        cls, settings: Mapping[str, Any], templates: Mapping[str, Template]
    ) -> "PromptSettings":
        """Checked settings. Raises ValueError that says what to write instead."""
        known = ("preset", "system", "few_shot")
        for key in settings:
            if key not in known:
                raise ValueError(f"prompt has no setting {key!r}: it takes {', '.join(known)}")
        preset = settings.get("preset", "plain")
        if not isinstance(preset, str) or preset not in templates:
            raise ValueError(f"unknown preset {preset!r}: write one of {', '.join(templates)}")
        system = settings.get("system")
        if system is not None and not isinstance(system, str):
            raise ValueError(f"invalid system {system!r}: write a string, or leave it out")
        few_shot = settings.get("few_shot") or ()
        form = "write few_shot as a list of {question: …, answer: …}"
        if isinstance(few_shot, str) or not isinstance(few_shot, Sequence):
            raise ValueError(form)
        for example in few_shot:
            if not isinstance(example, Mapping) or set(example) != {"question", "answer"}:
                raise ValueError(f"few_shot holds {example!r}: {form}")
        examples = tuple((str(e["question"]), str(e["answer"])) for e in few_shot)
        return cls(preset, system, examples)


def chat(template: Template, settings: PromptSettings, question: str) -> list[Message]:
    """System prompt, few-shot examples in the template's wording, and the question."""
    messages = [{"role": "system", "content": settings.system}] if settings.system else []
    for example, answer in settings.few_shot:
        messages.append({"role": "user", "content": template.render(example)})
        messages.append({"role": "assistant", "content": answer})
    return [*messages, {"role": "user", "content": template.render(question)}]
