"""Makes torch see the pretended device.

Loaded by pytest in a process that `python tests/pretended` has prepared.
"""

from __future__ import annotations

from functools import partial
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pretended.graphs import Graph
from pretended.tensors import MEMORY, TOTAL, Everywhere, OnDevice
from torch import Tensor
from torch.utils._pytree import tree_map

NAME = "pretended GPU"


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is imported: they ask for a device."""
    properties = SimpleNamespace(
        name=NAME, major=9, minor=0, total_memory=TOTAL, multi_processor_count=132
    )
    torch.cuda.get_device_properties = lambda device=None: properties
    torch.cuda.init()
    torch._C._set_only_lift_cpu_tensors(
        True
    )  # `torch.tensor(..., device="cuda")` is made on the CPU, then copied
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    stand_ins: dict[str, Any] = {
        "CUDAGraph": Graph,
        "graph_pool_handle": partial(next, zip(count(1), repeat(0))),
        "is_current_stream_capturing": lambda: Graph.recording is not None,
        "memory_allocated": lambda device=None: MEMORY.held,
        "memory_reserved": lambda device=None: MEMORY.held,
        "max_memory_allocated": lambda device=None: MEMORY.peak,
        "max_memory_reserved": lambda device=None: MEMORY.peak,
        "reset_peak_memory_stats": MEMORY.forget_peak,
        "mem_get_info": lambda device=None: (MEMORY.allowed - MEMORY.held, TOTAL),
        "set_per_process_memory_fraction": MEMORY.allow,
        "empty_cache": lambda: None,
        "_lazy_init": lambda: None,
    }
    for name, made in stand_ins.items():
        setattr(torch.cuda, name, made)
    torch.save, torch.load = _saving(torch.save), _loading(torch.load)
    Everywhere().__enter__()


def _saving(save: Any) -> Any:
    def saved(tree: Any, *args: Any, **kwargs: Any) -> None:
        save(
            tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, OnDevice) else leaf, tree),
            *args,
            **kwargs,
        )

    return saved


def _loading(load: Any) -> Any:
    def loaded(*args: Any, map_location: Any = None, **kwargs: Any) -> Any:
        tree = load(*args, map_location="cpu", **kwargs)
        return tree_map(
            lambda leaf: leaf.to(map_location or "cpu") if isinstance(leaf, Tensor) else leaf, tree
        )

    return loaded
