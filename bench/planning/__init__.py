"""From a request to its runs, each fully resolved, without torch or ray.

`request` -> `plan`, by `settings`, `configurations` and `requirements` -> `model`, whose runs are `run_spec`s. `tables`
and `table_plan` do it for a paper's table; `packing` groups runs into programs that share GPUs, `labels` names them.
"""
