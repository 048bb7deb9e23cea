"""Imports of other tools' files as probes, and exports of subsets for trainers."""

from orchestrator.optional.exchange.exports import (
    LAYOUTS,
    export_layout,
    export_subset,
    exported_table,
    prompts_of,
    read_subset_file,
    summary_of,
)
from orchestrator.optional.exchange.imports import Imported, import_file, import_probe, write_import
from orchestrator.optional.exchange.layouts import ALIASES, REQUIRES
from orchestrator.optional.exchange.records import Hints

IMPORTS = (*REQUIRES, *ALIASES)  # names of the import layouts
EXPORTS = tuple(LAYOUTS)  # names of the export layouts

__all__ = [
    "EXPORTS",
    "IMPORTS",
    "Hints",
    "Imported",
    "export_layout",
    "export_subset",
    "exported_table",
    "import_file",
    "import_probe",
    "prompts_of",
    "read_subset_file",
    "summary_of",
    "write_import",
]
