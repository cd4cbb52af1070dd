"""One federated run: the round, its two backends, evaluation and state; all that is common to the algorithms."""
