"""Others' files in, subsets out: imports as probes, exports in the layouts of trainers."""

from orchestrator.exchange.entries import Hints
from orchestrator.exchange.exports import (
    LAYOUTS,
    export_file,
    export_subset,
    prompts_of,
    read_subset_file,
    summary_of,
)
from orchestrator.exchange.imports import Imported, import_file, import_probe, write_import
from orchestrator.exchange.layouts import ALIASES, NEEDS

IMPORTS = (*NEEDS, *ALIASES)  # names of the layouts that are read
EXPORTS = tuple(LAYOUTS)  # and of those that are written

__all__ = [
    "EXPORTS",
    "IMPORTS",
    "Hints",
    "Imported",
    "export_file",
    "export_subset",
    "import_file",
    "import_probe",
    "prompts_of",
    "read_subset_file",
    "summary_of",
    "write_import",
]
