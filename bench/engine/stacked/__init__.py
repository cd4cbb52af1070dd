"""The backend that trains clients side by side.

backend.py           groups of runs that train as one program
stack.py             one round of such a group
steps.py             inputs of each step
layers.py            layers in the precision and the memory layout of a stack
batched_hparams.py   hyper-parameters as tensors
step_executors.py    steps executed one by one, or captured once, as CUDA graphs, and replayed
"""
