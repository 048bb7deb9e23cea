"""Where sweeps run: connecting to or starting Ray, and the resources of each part of a sweep."""
