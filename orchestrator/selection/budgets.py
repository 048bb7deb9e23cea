"""The number of prompts in a budget."""

from orchestrator.plugins.counts import counted
from orchestrator.storage.errors import UserError


def size_of(budget: str, pool: int, name: str = "--budget") -> int:
    """`0.1` is a share of the pool, `80` a count."""
    try:
        if float(budget) <= 0:
            raise ValueError("not positive")
        return int(budget) if budget.isdigit() else int(float(budget) * pool + 1e-9)
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"{name} {budget[:40]}: write a share (0.1) or a count (80)", "invalid-budget"
        ) from error


def check_size(budget: str, size: int, pool: int, of: str) -> None:
    """Raise UserError if a subset of that size is empty, or larger than a pool of `of`."""
    if 0 < size <= pool:
        return
    advice = f"write a share such as 0.1, or a count up to {pool:,}"
    if not size:
        advice = "write a count such as 1, or a larger share"
    raise UserError(f"--budget {budget}: {counted(size, 'prompt')} of the {pool:,} {of}: {advice}")
