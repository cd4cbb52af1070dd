"""The processor that a row names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import provenance


@pytest.mark.parametrize(
    ("cpuinfo", "processor", "shown"),
    [
        ("flags\t: fpu\nmodel name\t: A CPU @ 2 GHz\n", "other", "A CPU @ 2 GHz"),
        ("flags\t: fpu\n", "other", "arm64"),
        (None, "a processor", "a processor"),
        (None, "", "arm64"),
    ],
)
def test_the_processor_is_named(
    cpuinfo: str | None, processor: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, *options: Any) -> str:
        if cpuinfo is None:
            raise FileNotFoundError(path)
        return cpuinfo

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(provenance.platform, "processor", lambda: processor)
    monkeypatch.setattr(provenance.platform, "machine", lambda: "arm64")
    assert provenance._cpu.__wrapped__() == shown
