"""Selection: difficulty table -> subset."""
