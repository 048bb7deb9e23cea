"""The arithmetic task: well-formed questions, and gold answers that follow from the steps."""

from pools import pool_hash
from processes import output_of

from tasks import Prompt
from tasks.arithmetic import (
    Arithmetic,
)


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.prompt_id for prompt in prompts]


def test_the_default_pool_of_arithmetic_has_the_pinned_hash() -> None:
    """Stored probes name these ids; a change here must come with a new `version`."""
    code = "from pools import pool_hash; print(pool_hash('arithmetic'))"
    in_new_process = output_of(f"import sys; sys.path.insert(0, 'tests/support'); {code}").strip()
    assert in_new_process == pool_hash("arithmetic") == "f0c10999457941f9"
    prompts = [*Arithmetic().train(), *Arithmetic().test()]
    assert len({*ids(prompts)}) == len({p.question for p in prompts}) == 800 + 200
    assert not set(ids(Arithmetic(seed=1).train())) & set(ids(prompts))


def test_the_default_pool_of_shuffled_objects_has_the_pinned_hash() -> None:
    """Stored probes name these ids; a change here must come with a new `version`."""
    code = "from pools import pool_hash; print(pool_hash('shuffled_objects'))"
    in_new_process = output_of(f"import sys; sys.path.insert(0, 'tests/support'); {code}").strip()
    assert in_new_process == pool_hash("shuffled_objects") == "50aea9472af718a5"
