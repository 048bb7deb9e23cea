"""What a cell learned: pass@k and accuracy, learnable %, and the evaluator."""
