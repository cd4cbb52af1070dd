"""Fields of a setting that have no effect are reset, so that equal runs have equal keys."""

from __future__ import annotations

from typing import Any

import pytest

from bench.planning.settings import canonical
from search_spaces import Setting

ADAM = {"optimizer": "adam"}
NO_ADAM = {"optimizer": "sgd"}


@pytest.mark.parametrize(
    ("field", "value", "inert", "effective"),
    [
        ("alpha", 0.3, {"partition": "iid"}, {"partition": "lda"}),
        ("classes_per_client", 3, {"partition": "iid"}, {"partition": "k_classes"}),
        ("momentum", 0.5, ADAM, NO_ADAM),
        ("nesterov", True, {**ADAM, "momentum": 0.5}, {**NO_ADAM, "momentum": 0.5}),
        ("adam_beta1", 0.5, NO_ADAM, ADAM),
        ("adam_beta2", 0.5, NO_ADAM, ADAM),
        ("adam_eps", 0.5, NO_ADAM, ADAM),
        ("decay_exempt", "norm", {"weight_decay": 0.0}, {"weight_decay": 0.1}),
        ("validation_rule", "last", {"validation_fraction": 0.0}, {"validation_fraction": 0.1}),
        ("public", "own", {"auxiliary_per_class": 3}, None),
    ],
)
def test_a_field_without_effect_is_reset(
    field: str, value: Any, inert: dict[str, Any], effective: dict[str, Any] | None
) -> None:
    base: dict[str, Any] = {"dataset": "digits", "model": "mlp", "alpha": 0.1, field: value}
    reset = getattr(canonical(Setting(**{**base, **inert})), field)
    assert reset == (None if field == "alpha" else getattr(Setting(), field))
    if effective is not None:
        assert getattr(canonical(Setting(**{**base, **effective})), field) == value
