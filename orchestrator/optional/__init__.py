"""Optional parts: no package below imports them; registries name them."""
