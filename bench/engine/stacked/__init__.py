"""The backend that trains clients side by side: `backend.py` groups runs, `stack.py` trains a group as one program.

steps.py             inputs of each step
batched_hparams.py   hyper-parameters as tensors
step_executors.py    steps executed one by one, or captured once, as CUDA graphs, and replayed
"""
