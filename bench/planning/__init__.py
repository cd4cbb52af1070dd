"""From a request to its runs, each fully resolved, without torch or ray.

`request` -> `plan`, by `settings` and `configurations` -> `model`, whose runs are `run_spec`s. `tables`
and `table_plan` do it for a paper's table; `packing` groups runs into programs that share GPUs.
"""
