"""Code of the user's own: where it is found, what it registers, and how its errors are named."""
