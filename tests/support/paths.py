"""Folders that tests read."""

from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
LOGS = SUPPORT / "exchange_logs"
