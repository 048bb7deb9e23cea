"""`decile …`: parser, commands, and what they print."""
