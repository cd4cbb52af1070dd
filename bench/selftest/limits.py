"""The limits at which an algorithm is another one: what its formula becomes when a weight is 0, a buffer holds one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.selftest.toy import EQUAL_SIZES, SIZES

SAME_ARITHMETIC = 0.0
ROUNDING = 1e-12  # float64
MODELS = ("mlp", "mlp+bn", "cnn_digits")
ONE_CLIENT = (sum(SIZES),)
_CLIENTS = {EQUAL_SIZES: "equal clients", ONE_CLIENT: "one client"}


@dataclass(frozen=True)
class Limit:
    """One equality of two algorithms.

    Args:
        values: hyper-parameters at the limit.
        other: the algorithm that it then is.
        other_values: that one's hyper-parameters.
        rows: the suffix of the row that is compared, of either.
        tolerance: 0 where both do the same arithmetic, which is then compared in float32, bit for bit.
        rounds: how long they are equal.
        models: on which they are.
        exact_models: these models as they are, even where the algorithm needs another form.
        sizes: samples of each client of the algorithm.
        other_sizes: of the other one.
        fields: of the setting.
    """

    values: Mapping[str, Any]
    other: str = "fedavg"
    other_values: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[str, str] = ("", "")
    tolerance: float = SAME_ARITHMETIC
    rounds: int = 3
    models: tuple[str, ...] = MODELS
    exact_models: bool = False
    sizes: tuple[int, ...] = SIZES
    other_sizes: tuple[int, ...] = SIZES
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [f"{name}={value}" for name, value in {**self.values, **self.fields}.items()]
        said += [f"row {self.rows[0]}"] if self.rows[0] else []
        said += [text for sizes, text in _CLIENTS.items() if self.sizes == sizes]
        said += ["round 1"] if self.rounds == 1 else []
        said += ["no BatchNorm"] if self.exact_models else []
        return f"{', '.join(said) or 'as it is'} = {self.other} {_listed(self.other_values)}".rstrip()


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _equal_clients(**values: Any) -> Limit:
    """Equal to FedAvg where all clients have as many samples, and so take as many steps."""
    return Limit(values, tolerance=ROUNDING, sizes=EQUAL_SIZES, other_sizes=EQUAL_SIZES)


_EVERYONE = {"participation": 1.0}

LIMITS: Mapping[str, tuple[Limit, ...]] = {
    "fedprox": (Limit({"mu": 0.0}), Limit({"mu": 0.0, "prox_reduction": "mean_per_tensor"})),
    "moon": (Limit({"mu": 0.0}), Limit({"mu": 0.0, "first_previous": "random"})),
    "feddistill": (Limit({"distillation_weight": 0.0}),),
    "fedgen": (Limit({"hard_weight": 0.0, "soft_weight": 0.0}),),
    "fedgkd": (Limit({"gamma": 0.0}),),
    "fedgkd_vote": (
        Limit({"distillation_weight": 0.0}),
        Limit({"buffer": 1}, "fedgkd", {"gamma": 0.2, "buffer": 1}, tolerance=ROUNDING),
    ),
    "fedgkd_plus": (Limit({"gamma": 0.0}), Limit({}, "fedgkd")),
    "fedgkd_mse": (Limit({"gamma": 0.0}),),
    "fedmax": (Limit({"beta": 0.0}), Limit({"beta": 0.0, "fedmax_direction": "u_a"})),
    "fedbn": (Limit({}, models=("mlp", "cnn_digits"), exact_models=True),),
    "fedlc": (Limit({"tau": 0.0}),),
    "fedrs": (Limit({"missing_scale": 1.0}),),
    "fedntd": (Limit({"beta": 0.0}),),
    "qffl": (_equal_clients(q=0.0),),
    "feddkd": (Limit({"steps": 0}), Limit({"lr": 0.0})),
    "feddkd_max": (
        Limit({"steps": 0}, "fedmax"),
        Limit({"lr": 0.0}, "fedmax"),
        Limit({"beta": 0.0}, "feddkd"),
    ),
    "feddkd_bn": (
        Limit({"steps": 0}, "fedbn"),
        Limit({"lr": 0.0}, "fedbn"),
        Limit({}, "feddkd", models=("mlp", "cnn_digits"), exact_models=True),
    ),
    "fedlsd": (Limit({"distillation_weight": 0.0}),),
    "fedcad": (
        Limit({"beta": 0.0, "gamma": 0.0}),
        Limit({"beta": 0.3, "gamma": 0.3}, "fedlsd", {"distillation_weight": 0.3}),
        Limit({"beta": 0.5, "gamma": 0.5}, "fedlsd", {"distillation_weight": 0.5}),
    ),
    "fedkf": (Limit({"gamma": 0.0}, fields=_EVERYONE),),
    "fedavg_t1": (Limit({}), Limit({}, rows=("_t1", ""), fields=_EVERYONE)),
    "fedprox_t1": (Limit({}, "fedprox"), Limit({"mu": 0.0}), Limit({}, "fedprox", rows=("_t1", ""), fields=_EVERYONE)),
    "fedgkd_t1": (Limit({}, "fedgkd"), Limit({"gamma": 0.0}), Limit({}, "fedgkd", rows=("_t1", ""), fields=_EVERYONE)),
    "scaffold": (Limit({}, tolerance=ROUNDING, rounds=1, sizes=EQUAL_SIZES, other_sizes=EQUAL_SIZES),),
    "fednova": (_equal_clients(),),
    "fedavgm": (Limit({"server_momentum": 0.0}, tolerance=ROUNDING),),
    "feddf": (Limit({"max_steps": 0}),),
    "centralized": (Limit({}, other_sizes=ONE_CLIENT),),
    "local": (Limit({}, sizes=ONE_CLIENT, other_sizes=ONE_CLIENT),),
}
