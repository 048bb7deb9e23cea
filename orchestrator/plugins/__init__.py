"""The user's own code: how it is imported and registered, and how its errors are reported."""
