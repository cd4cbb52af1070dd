"""`--mirror URL`: a result folder's copy in any file system that pyarrow knows, and sweeps that go on from it.

A mirror is itself a result folder (`leaderboards.rows`), with the same files under the same names: syncing is copying
those that one side lacks, and that no segment of the folder stands in for. Missing files come before a sweep is
planned, and go every minute and at the end. The folder stays what runs work with: a mirror that fails costs no run.

`mirror` copies rows and tracked files, and keeps a folder in step around a sweep; `states` copies the states of
unfinished runs, `place` is the file system.
"""
