"""How many prompts a budget is."""

from orchestrator.storage.errors import UserError


def size_of(budget: str, pool: int, name: str = "--budget") -> int:
    """`0.1` is a share of the pool, `80` a count."""
    try:
        return int(budget) if budget.isdigit() else int(float(budget) * pool + 1e-9)
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"{name} {budget[:40]}: write a share (0.1) or a count (80)", "invalid-budget"
        ) from error
