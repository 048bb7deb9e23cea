"""Where the rows of tasks come from: files, the hub, and a user's own tables."""
