"""Federated runs: the round, its two backends, evaluation, and the saved state."""
