"""What the tests of user files share."""

from orchestrator.config.yaml_lines import MAX_DIGITS

HUGE = (
    "0x" + "f" * 8_000,
    "-0x" + "f" * 8_000,
    "0b" + "1" * 20_000,
    "0o" + "7" * 8_000,
    "0" + "7" * 8_000,
    "9" * 8_000,
    "9" * MAX_DIGITS,
    "1_" * 4_000 + "1",
    "1" + ":59" * 3_000,
    "1e999",
    "-1e999",
    "1." + "0" * 9_000,
    "9" * 8_000 + ".5",
)
