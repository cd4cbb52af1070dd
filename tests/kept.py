"""Numbers that may not move, because stored runs have them: kept in tests/data/approved/numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import pytest
from board import APPROVED


def assert_kept(file: str, name: str, numbers: Mapping[str, float], error: float = 1e-6) -> None:
    """Compare numbers with those kept under a name; APPROVE=1 keeps these.

    `error`: relative, of rounding on other machines.
    """
    path = APPROVED / "numbers" / file
    kept = json.loads(path.read_text()) if path.exists() else {}
    if os.environ.get("APPROVE"):
        kept[name] = {key: float(f"{value:.9g}") for key, value in numbers.items()}
        lines = [f"{json.dumps(key)}: {json.dumps(kept[key])}" for key in sorted(kept)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert numbers == pytest.approx(kept[name], rel=error, abs=1e-9), f"{name} in {file}"
