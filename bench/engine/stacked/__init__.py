"""The backend that trains clients side by side: `backend.py` groups runs, `stack.py` is one program of them.

steps.py                       what each step takes
convolutions.py, between.py    layers of which each client has its own
lowered.py                     parameters in bfloat16
numbers.py                     hyper-parameters as tensors
programs.py, captures.py       how steps are executed: as they come, as CUDA graphs, as traces
rooms.py                       where their tensors lie
probe.py, choices.py           which program is fastest, and that it was chosen
memory.py                      how many clients fit
"""
