"""Stored runs, as commands read them: `results` reads folders, `groups` says which runs are compared."""
