"""When groups teach hardly anything: rewards and correctness within a group."""

from collections.abc import Sequence

# An update is explained when at most this share of its groups is live.
HARDLY_ANY = 1 / 8


Rewards = Sequence[float | None]


def is_live(rewards: Rewards) -> bool:
    """Whether a group's rewards differ, so that some completion has an advantage."""
    known = {r for r in rewards if r is not None}
    return len(known) > 1


def correctness(outcomes: Sequence[str]) -> list[float | None]:
    """1.0 for correct, 0.0 for any other outcome, None if marking failed."""
    return [None if o == "error" else float(o == "correct") for o in outcomes]


def kind_of(correct: Rewards) -> str:
    """live, all_right, all_wrong, or unmarked if no completion could be marked."""
    known = [r for r in correct if r is not None]
    if not known:
        return "unmarked"
    if is_live(known):
        return "live"
    return "all_right" if known[0] > 0 else "all_wrong"
