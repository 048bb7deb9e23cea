"""The task `reasoning_gym`, and what it asks of that library in child processes."""
