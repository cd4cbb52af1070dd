"""Check `reductions`: at its limits an algorithm is another one, and away from them it is not FedAvg."""

from __future__ import annotations

from bench.engine.simulation import Simulation
from bench.selftest.candidate import Candidate, candidate
from bench.selftest.certify import Finding, NotApplicable
from bench.selftest.equations import LIMITS, Limit
from bench.selftest.toy import gap, models_of

SMALLEST_EFFECT = 1e-9


def check(tested: Candidate, finding: Finding) -> None:
    """Every limit on its models, with both backends; then that the defaults are no limit.

    Raises:
        NotApplicable: no limit is known.
    """
    limits = [limit for limit in LIMITS.get(tested.judged_as or "", ()) if not tested.lacks(limit.values)]
    if not limits and tested.judged_as is None:
        raise NotApplicable("no limits are known of an algorithm from outside; --as NAME takes a built-in's")
    shown = []
    for limit in limits:
        found = max(
            (_compare(tested, limit, model, backend) for model in limit.models for backend in ("loop", "stacked")),
        )
        finding.expect(found <= limit.tolerance, f"{limit}: models differ by {found:.1e} > {limit.tolerance:g}")
        shown.append(f"{limit}: {found:.1e}" if found else f"{limit}: exactly")
    if tested.judged_as != "fedavg":
        _differs(tested, finding)
        shown.append("differs from fedavg")
    elif not shown:
        raise NotApplicable("it is what others reduce to")
    finding.measured = "; ".join(shown)


def _compare(tested: Candidate, limit: Limit, model: str, backend: str) -> float:
    """The largest difference between the compared rows' models."""
    precision = "fp64" if limit.tolerance else "fp32"
    if not limit.exact_models:
        model = candidate(limit.other).model(tested.model(model))
    fields = {"model": model, "precision": precision, "exact_model": limit.exact_models, **limit.fields}
    one = tested.run(limit.rounds, backend, limit.values, sizes=limit.sizes, **fields)
    other = candidate(limit.other).run(limit.rounds, backend, limit.other_values, sizes=limit.other_sizes, **fields)
    return _gap(one, other, limit.rows)


def _gap(one: Simulation, other: Simulation, rows: tuple[str, str]) -> float:
    """Row against row; a personal model against that client's, or against the model that all share."""
    found, wanted = models_of(one), models_of(other)
    pairs = [
        (model, wanted.get((rows[1], client)) or wanted[rows[1], None])
        for (suffix, client), model in found.items()
        if suffix == rows[0]
    ]
    return max(gap(model, like) for model, like in pairs)


def _differs(tested: Candidate, finding: Finding) -> None:
    """With its defaults, the algorithm does something."""
    one, fedavg = tested.run(4), candidate("fedavg").run(4, model=tested.model())
    plain = models_of(fedavg)["", None]
    effect = max(gap(model, plain) for model in models_of(one).values())
    finding.expect(effect > SMALLEST_EFFECT, f"with its defaults it is FedAvg: the models differ by {effect:.1e}")
