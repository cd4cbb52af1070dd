"""Passes on a few samples that show what a model from outside does, before its first run."""
