"""Stored runs: `results` reads folders, `groups` says which runs are compared."""
