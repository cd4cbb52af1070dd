"""Stored runs, as commands look at them: `results` reads folders, `groups` says what is compared with what."""
