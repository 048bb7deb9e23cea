"""Parts that the core does without: no package below imports them; registries name them."""
