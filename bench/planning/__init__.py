"""Planning: a user's request is resolved into runs, without torch or ray.

`plan` resolves a `request` with the help of `configurations` into the `Plan` of `run_spec`;
`tables` and `table_plan` do so for a paper's table. `packing` groups runs into programs that share
GPUs.
"""
