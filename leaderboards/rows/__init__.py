"""Storage of results: immutable files of rows and curves, which any number of writers share.

Files are named by their content:

    OUT/runs/<key16>-<env8>-<hash16>.parquet  one row (leaderboards.COLUMNS), named by run key,
                                              environment and content
    OUT/curves/<same name>                    its curve (`schema.CURVE_COLUMNS`), written first
    OUT/runs/packed-<hash32>.parquet          a segment: many rows; `file` is the name that each
                                              had alone
    OUT/curves/packed-<hash32>.parquet        their points, `file` likewise
    OUT/leaderboard.parquet                   made from the rows by `Store.rebuild`

No file is ever changed, so nothing is locked, and two folders are merged by copying the files that
one of them lacks. If several rows have one run key and environment, readers use the finished row,
then the stopped, then the failed one. Among rows of one status, a row of `--force` or with tracked
data counts, otherwise the row written last, and among equals the smaller name. Compaction writes a
segment, which names the files that it replaces, and then deletes them; a reader that misses a file
lists again. A stored row also has `written`, `forced` and `tracked`, the names of its files in
OUT/tracked.

`index` finds rows, `counted` chooses among them, `reading` reads them, `compaction` packs them.
`store` writes and reads runs, `verify` finds the faults of a folder. Names without a hash and
segments with a random hash are of earlier versions; such files are read as they are, and copied
under a name of the first kind.
"""
