"""A hash by which a change of a task's default pool is noticed."""

import hashlib

from tasks import get_task


def pool_hash(task: str) -> str:
    """A short hash of the ids of a task's default pool and test set, in their order."""
    instance = get_task(task)
    ids = " ".join(prompt.prompt_id for prompt in [*instance.train(), *instance.test()])
    return hashlib.sha256(ids.encode()).hexdigest()[:16]
