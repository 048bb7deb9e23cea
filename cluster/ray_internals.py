"""The only module that uses private parts of Ray.

`tests/test_library_internals.py` compares everything used here with the installed version, and
`pyproject.toml` pins Ray to the minor version that was tested.
"""

from collections.abc import Mapping


def autoscaler_limit() -> Mapping[str, float] | None:
    """The largest resource counts that the autoscaler reports for the cluster; None without one.

    Ray's public API has the resources of now only. Needs a connected Ray.
    """
    from ray._private.state import state

    limit: Mapping[str, float] | None = state.get_max_resources_from_cluster_config()
    return limit
