"""How answers are read from completions and compared."""
