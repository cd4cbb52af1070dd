"""From a request to its runs, each fully resolved, without torch or ray.

`request` -> `plan`, by `configurations` -> the plan of `run_spec`, which has its runs. `tables` and `table_plan` do it
for a paper's table; `packing` groups runs into programs that share GPUs.
"""
