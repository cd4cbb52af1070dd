"""From a request to its runs, each fully resolved, without torch or ray.

`request` -> `plan`, by `settings`, `configurations` and `needs` (an algorithm's requirements) -> `model`, whose runs
are `unit`s. `tables` and `table_plan` do it for a paper's table; `packs` groups runs into programs, `shares` gives them
a part of a GPU, `labels` names them.
"""
