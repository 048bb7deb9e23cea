"""Kills, damaged files and faults at random moments of a small sweep: `make chaos`.

Every case must end with the results of an undisturbed sweep, one MLflow run per cell, no process
left over and no traceback in the terminal.
"""
