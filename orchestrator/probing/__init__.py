"""Probing: prompts -> marked samples in the store."""
