"""Prompts -> marked samples -> difficulty -> subsets: what happens before anything is trained."""
