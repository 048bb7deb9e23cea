"""Programs as answers: the task `code`, its tests, and the sandbox that runs them."""
