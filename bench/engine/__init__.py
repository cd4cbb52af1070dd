"""One federated run: the round, its two backends, evaluation and state. Everything an algorithm need not say."""
