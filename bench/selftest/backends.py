"""Check `backends`: clients one by one, clients stacked and runs in a pack give the same models and traffic."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from bench.engine.pack import Pack
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.cuda_graphs import traced
from bench.engine.stacked.step_executors import Captured
from bench.selftest.candidate import Candidate, Values
from bench.selftest.certify import Finding
from bench.selftest.hyperparameters import alternatives
from bench.selftest.toy import largest_gap

TOLERANCE = 1e-10  # float64, three rounds
# A bias before BatchNorm has no gradient but rounding, which an Adam (FedDF's server has one) turns into steps.
BATCHNORM_TOLERANCE = 1e-9
SINGLE_TOLERANCE = 1e-5  # float32, one round
WHERE = {TOLERANCE: "largest gap", BATCHNORM_TOLERANCE: "with BatchNorm", SINGLE_TOLERANCE: "in float32"}
ROUNDS = 3
MODELS = ("mlp", "mlp+bn", "mlp+head", "cnn_digits", "cnn_digits+bn")
MODELS_WITH_GENERATOR = ("mlp", "cnn_digits+bn")  # generated images take a hundred times the toy's own time
MOMENTUM = {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.9}


def check(candidate: Candidate, finding: Finding) -> None:
    """The largest gap over models, augmentation, optimisers and every choice among the algorithm's own forms."""
    largest, runs = dict[float, float](), 1
    for values, fields in cases(candidate):
        tolerance = BATCHNORM_TOLERANCE if "+bn" in fields["model"] else TOLERANCE
        gap = compare(candidate, finding, ROUNDS, tolerance, values, fields)
        largest[tolerance], runs = max(largest.get(tolerance, 0.0), gap), runs + 1
    gap, members = _compare_packed(candidate, finding)
    largest[TOLERANCE], runs = max(largest.get(TOLERANCE, 0.0), gap), runs + members
    single = {"model": candidate.model(), "precision": "fp32"}
    largest[SINGLE_TOLERANCE] = compare(candidate, finding, 1, SINGLE_TOLERANCE, {}, single)
    gaps = "; ".join(f"{WHERE[limit]} {largest[limit]:.1e} <= {limit:g}" for limit in WHERE if limit in largest)
    finding.measured = f"{gaps}; {runs} cases"


def _traced() -> Captured:
    """A program that fixes of a server's steps what a GPU's would."""
    return Captured(traced, warm_ups=1)


def _compare_packed(candidate: Candidate, finding: Finding) -> tuple[float, int]:
    """The largest gap between runs in one pack and each of them alone, and how many there are.

    They differ in the seed, in the learning rate, and in each number that configurations may differ in.
    """
    numbers = [item for item in candidate.entry.fields if item.packable and item.kind == "float"]
    others = [next(alternatives(candidate, item), {}) for item in numbers]
    members: list[tuple[Values, dict[str, Any]]] = [({}, {}), ({}, {"seed": 1}), ({}, {"lr": 0.05})]
    together = {name: value for values in others for name, value in values.items()}
    # One member for all numbers if they are allowed together: it shows each of them that is not as it should be.
    members += [(values, {}) for values in ([together] if candidate.allows(together) else others) if values]
    pack = Pack([candidate.simulate("stacked", values, rounds=4, **fields) for values, fields in members])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of is said below
        pack.advance(ROUNDS)
    names = ", ".join(item.name for item in numbers)
    for error in [*pack.failures.values(), pack.apart]:
        with finding.case(f"packable, but not as tensors: {names}" if numbers else "in a pack"):
            if error:
                raise error
    gaps = [
        largest_gap(candidate.run(ROUNDS, "loop", values, **fields), run)
        for (values, fields), run in zip(members, pack.members, strict=True)
    ]
    finding.expect(
        max(gaps) <= TOLERANCE, f"the models differ by {max(gaps):.1e} in a pack of runs that differ in {names}"
    )
    return max(gaps), len(members)


def cases(candidate: Candidate) -> Iterator[tuple[Values, dict[str, Any]]]:
    """(hyper-parameters, setting) of each comparison."""
    models = MODELS_WITH_GENERATOR if "images" in candidate.needs else MODELS
    for model in dict.fromkeys(map(candidate.model, models)):
        yield {}, {"model": model}
    plain = candidate.model()
    yield {}, {"model": candidate.model("cnn_digits"), "augmentation": "flip_crop"}
    yield {}, {"model": candidate.model("mlp+bn"), "augmentation": "flip_crop_reflect"}
    if "plain_sgd" not in candidate.needs:
        yield {}, {"model": plain, **MOMENTUM}
    for values in candidate.other_choices():
        yield values, {"model": plain}


def compare(
    candidate: Candidate, finding: Finding, rounds: int, tolerance: float, values: Values, fields: dict[str, Any]
) -> float:
    """The gap between the two backends; what is too large is noted."""
    loop = candidate.run(rounds, "loop", values, **fields)
    stacked = candidate.simulate("stacked", values, **{"rounds": max(rounds, 4), **fields})
    stacked.trainer = Stacked(server=_traced)
    stacked.advance(rounds)
    where = ", ".join(f"{name}={value}" for name, value in {**values, **fields}.items())
    gap = largest_gap(loop, stacked)
    finding.expect(gap <= tolerance, f"Loop and Stacked differ by {gap:.1e} > {tolerance:g} with {where}")
    one, two = loop.progress.traffic, stacked.progress.traffic
    finding.expect(one == two, f"the traffic differs with {where}: {one} and {two}")
    finding.expect(not loop.progress.diverged, f"it diverges with {where}")
    return gap
