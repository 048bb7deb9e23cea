"""What the tests of policies share."""

from typing import Any

from hypothesis import strategies as st

from policies import (
    find_policy,
    get_policy,
    policy_names,
)
from policies.online import is_online

OUTCOMES = ["correct", "wrong", "unparsed", "truncated", "error", None]
OPTIONS: dict[str, dict[str, Any]] = {
    "band": {"low": 0.2, "high": 0.8},
    "agreement_band": {"low": 0.2, "high": 0.8},
    "tiers": {"levels": "1-2"},
    "mixture": {"shares": {"hard": 0.5, "random": 0.5}},
}
STATIC = [name for name in policy_names() if not is_online(find_policy(name))]
SCORED = [name for name in STATIC if name not in ("mixture", "diverse")]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "pass_rate": st.sampled_from([None, 0.0, 0.2, 0.5, 0.8, 1.0]),
            "tier": st.sampled_from(["1", "2", "3", None]),
            "first": st.sampled_from(OUTCOMES),
            "learnability": st.sampled_from([0.0, 0.3, 0.9]),
            **dict.fromkeys(("agreement", "entropy", "tokens"), st.sampled_from([0.0, 0.3, 0.9])),
            **dict.fromkeys(("wrong", "unparsed", "truncated"), st.integers(0, 3)),
        }
    ).map(lambda row: row | ({"learnability": None} if row["pass_rate"] is None else {})),
    min_size=1,
    max_size=40,
)


def policy_of(name: str, **options: Any) -> Any:
    """The policy, with the options that it requires."""
    return get_policy(name, **{**OPTIONS.get(name, {}), **options})


ONLINE = [name for name in policy_names() if is_online(find_policy(name))]
