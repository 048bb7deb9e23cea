"""The extra of Decile that installs a missing library."""

import re
from importlib.metadata import PackageNotFoundError, requires

_MODULES = {"scikit-learn": "sklearn"}  # distributions with a different module name
_REQUIREMENT = re.compile(r"([\w.-]+).*;.*extra == ['\"]([\w-]+)['\"]")


def missing_library(error: BaseException, *, own_trainer: bool = False) -> str:
    """What to install if an import failed because a library of an extra is missing; else "".

    The extra trl is part of sweep, and sufficient only for a user's own trainer.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.partition(".")[0]
    try:
        requirements = requires("decile") or []
    except PackageNotFoundError:  # source that is not installed
        return ""
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and _MODULES.get(match[1].lower(), match[1].lower().replace("-", "_")) == module:
            extra = "sweep" if match[2] == "trl" and not own_trainer else match[2]
            return f"{module} is not installed: pip install 'decile[{extra}]'"
    return ""
