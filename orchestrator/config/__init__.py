"""experiments.yaml -> validated settings. Imports neither torch, Ray nor MLflow."""
