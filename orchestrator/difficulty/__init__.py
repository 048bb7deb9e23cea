"""Marked samples -> difficulty per prompt. Pure."""
