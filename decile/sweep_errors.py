"""Errors that a call that samples, selects or trains may raise and that the user can correct."""

from cluster.resources import ResourceError
from orchestrator.storage.lease import LeaseHeld
from policies import PolicyError

SWEEP_ERRORS = (LeaseHeld, PolicyError, ResourceError)
