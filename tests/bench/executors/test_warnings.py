"""Warnings of trials in this process reach the sweep's display; those of Ray's workers are in `test_sweep.py`."""

from __future__ import annotations

import warnings

import pytest

from bench.errors import Slower, Waiting
from bench.executors.runner import warnings_said


def test_this_processs_own_warnings_are_said_and_others_are_shown_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, others = list[str](), list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(
            warnings, "showwarning", lambda message, *_, **__: others.append(str(message))
        )
        shown = warnings.showwarning
        with warnings_said(said.append):
            for category in (Slower, Waiting, Slower, RuntimeWarning):
                warnings.warn(category.__name__, category, stacklevel=1)
        assert warnings.showwarning is shown
    assert said == ["warning: Slower", "warning: Waiting"]
    assert others == ["RuntimeWarning"]
