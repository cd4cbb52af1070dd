"""`--mirror URL`: a copy of a result folder elsewhere, from which sweeps can go on.

The copy is in any file system that pyarrow knows. A mirror is itself a result folder
(`leaderboards.rows`), with the same files under the same names. Synchronising copies the files that
one side lacks, except files that a segment of the folder replaces. Missing files are fetched before
a sweep runs, and pushed every minute and at the end. Runs only use the folder, so a mirror that
fails costs no run.

`mirror` copies rows and tracked files, and synchronises a folder during a sweep. `mirrored_states`
copies the states of unfinished runs. `place` is the file system.
"""
