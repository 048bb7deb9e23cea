"""The task `reasoning_gym`, and its calls of that library in child processes."""
