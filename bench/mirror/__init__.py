"""`--mirror URL`: a result folder's copy in any file system that pyarrow knows, and sweeps that go on from it.

What the mirror has and the folder lacks is brought before a sweep is planned; what the folder has and the mirror lacks
is written every minute and at the end. The folder stays what runs work with: a mirror that fails costs no run.

`opening` says which mirror, `mirror` what goes each way and `pusher` when; layout and guarantees stand in `rows` and
`states`, and `place` is the file system. Files of `--track` lie under their own names, and go before rows.
"""
