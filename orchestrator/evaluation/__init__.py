"""What a cell learned: pass@k and accuracy, learnable %, and the evaluator."""

from orchestrator.evaluation.metrics import pass_at_k

__all__ = ["pass_at_k"]
