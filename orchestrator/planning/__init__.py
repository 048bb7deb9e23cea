"""Planning: an experiment -> its probes and cells, in three passes: resolve, load, expand."""
