"""A trial: runs from their states to their rows. Independent of Ray."""
