"""The backend that trains clients side by side: `backend.py` groups runs, `stack.py` is one program of them.

steps.py             what each step takes
batched_hparams.py   hyper-parameters as tensors
step_executors.py    steps executed one by one, or captured once, as CUDA graphs, and replayed
"""
