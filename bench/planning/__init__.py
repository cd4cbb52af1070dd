"""From what is asked for to the runs of it, each fully resolved: neither torch nor ray is needed for that.

`request` -> `plan`: `settings`, `configurations` and `budget`, `needs` (what an algorithm must be given)
-> `unit`, one run. `tables` and `table_plan` do it for a paper's table, `packs` and `shares` say which runs share a
program and how much of a GPU they get, `labels` what runs are called.
"""
