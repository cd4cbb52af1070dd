"""Planning: what a user asks for becomes runs, without torch or ray.

`planner` makes a `Plan` of `SweepOptions`, with the help of `given` (names and values), `settings`,
`configurations` and `common_tries`; `table_plan` and `tables` do so for a paper's table.
`two_stage` and `confirm` plan the runs that follow a search. `packing` groups runs into programs
that share GPUs, `trial_names` names their trials, and `work` counts their samples.
"""
