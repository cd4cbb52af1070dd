"""Execution of trials: runs, from their saved states to their rows. Independent of Ray."""
