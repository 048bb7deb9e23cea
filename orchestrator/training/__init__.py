"""One cell, from its subset to its result: TRL, the record, checkpoints, evaluations."""
