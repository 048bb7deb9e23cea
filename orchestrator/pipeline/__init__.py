"""The driver: one experiment from probes to views, and its progress."""
