"""Checks of whole runs on the toy federation: `backends`, `reductions`, `resume` and `learns`."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.engine.pytree import leaves
from bench.engine.server_context import PublicOfSeveralRuns
from bench.engine.simulation import Simulation
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.step_executors import Captured, traced
from bench.engine.together import advance_together
from bench.errors import chain
from bench.selftest.candidate import Candidate, Values, candidate
from bench.selftest.certify import Finding, NotApplicable, assignments, compared
from bench.selftest.equations import LIMITS, Limit
from bench.selftest.hyperparameters import SMALLEST_EFFECT, alternatives
from bench.selftest.toy import INFO, TEST_SAMPLES, distance, gap, identical, largest_gap, models_of
from bench.trial.results import guesses
from search_spaces import Value

# In float64. The gradient of a bias before BatchNorm is only rounding error, which Adam (in FedDF's
# server) turns into steps.
TOLERANCES = {"largest gap": 1e-10, "with BatchNorm": 1e-9}
CUT_BITS = 6  # of the 24 significant bits of float32
FLOAT32_SEEDS = range(5)
ROUNDS = 3
LEARNING_ROUNDS = 15
MODELS = ("mlp", "mlp+bn", "mlp+head", "cnn_digits", "cnn_digits+bn")
LIMIT_MODELS = ("mlp", "mlp+bn", "cnn_digits")
# Generating images takes a hundred times as long as a toy run.
MODELS_WITH_GENERATOR = ("mlp", "cnn_digits+bn")
MOMENTUM = {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.9}


class CoarseArithmetic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Arithmetic with 18 significant bits: the last six of every float32 result are cut off.

    How far a run in it ends from the same run in float32 is a measure of what rounding does to the
    algorithm, on this processor and with its optimisers: Adam turns the rounding error of a
    gradient near zero into whole steps.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view:  # of a result that is cut already, or of data
            return result
        for tensor in leaves(result):
            if tensor.dtype == torch.float32:
                tensor.view(torch.int32).bitwise_and_(-1 << CUT_BITS)
        return result


def backends(tested: Candidate, finding: Finding) -> None:
    """Check that clients trained one by one, stacked, and in a pack of runs give the same models.

    Their traffic must be the same, too. Compare over models, augmentations, optimisers and every
    choice among the algorithm's own forms: in float64 by the largest gap of a weight, in float32 by
    the distance of the models.
    """
    difference, members = _compare_packed(tested, finding)
    largest = {"largest gap": difference}
    cases = list(_backend_cases(tested))
    differing = []
    for values, fields in cases:
        kind = "with BatchNorm" if "+bn" in fields["model"] else "largest gap"
        difference = largest_gap(*_both_backends(tested, finding, values, fields))
        largest[kind] = max(largest.get(kind, 0.0), difference)
        if not difference <= TOLERANCES[kind]:
            verdict = compared(difference, TOLERANCES[kind])
            differing.append(f"{verdict} with {assignments({**values, **fields})}")
    gaps = [f"{kind} {compared(value, TOLERANCES[kind])}" for kind, value in largest.items()]
    difference, bound = float32_distance(tested, finding)
    gaps.append(f"distance in float32 {compared(difference, bound)}")
    if not difference <= bound:
        differing.append(f"{compared(difference, bound)} in float32, with most seeds")
    count = f"in {len(differing)} of {len(cases) + 1} cases"
    finding.expect(not differing, f"Loop and Stacked differ {count}: by {'; '.join(differing[:1])}")
    finding.measured = f"{'; '.join(gaps)}; {len(cases) + 1 + members} cases"


def float32_distance(tested: Candidate, finding: Finding) -> tuple[float, float]:
    """Return the distance of the backends' models in float32, and its bound.

    The bound is the distance of coarse arithmetic. Both are of one seed: it is within its bound if
    most seeds are. With a few, rounding alone exceeds the bound, because it moves a unit over the
    kink of ReLU, or the server to another checkpoint.
    """
    exceeding = []
    for tried, seed in enumerate(FLOAT32_SEEDS):
        fields: dict[str, Any] = {"model": tested.model(), "precision": "fp32", "seed": seed}
        loop, stacked = _both_backends(tested, finding, {}, fields)
        coarse = tested.simulate("loop", **fields)
        with CoarseArithmetic():  # type: ignore[no-untyped-call]
            coarse.advance(ROUNDS)
        difference = distance(loop, stacked)
        bound = distance(loop, coarse)
        if not difference <= bound:
            exceeding.append((difference, bound))
        elif 2 * len(exceeding) <= tried:  # more seeds within the bound than beyond it
            return difference, bound
    return exceeding[-1]


def _backend_cases(tested: Candidate) -> Iterator[tuple[Values, dict[str, Any]]]:
    """Yield (hyper-parameters, setting) of each comparison of backends in float64."""
    models = MODELS_WITH_GENERATOR if "images" in tested.needs else MODELS
    for model in dict.fromkeys(map(tested.model, models)):
        yield {}, {"model": model}
    plain = tested.model()
    yield {}, {"model": tested.model("cnn_digits"), "augmentation": "flip_crop"}
    yield {}, {"model": tested.model("mlp+bn"), "augmentation": "flip_crop_reflect"}
    if "plain_sgd" not in tested.needs:
        yield {}, {"model": plain, **MOMENTUM}
    for values in tested.other_choices():
        yield values, {"model": plain}


def _both_backends(
    tested: Candidate, finding: Finding, values: Values, fields: dict[str, Any]
) -> tuple[Simulation, Simulation]:
    """Return a run by Loop and by Stacked; record unequal traffic.

    Server steps of the stacked run are traced as on a GPU.
    """
    where = assignments({**values, **fields})
    loop = tested.run(ROUNDS, "loop", values, **fields)
    stacked = tested.simulate("stacked", values, **fields)
    stacked.trainer = Stacked(server=lambda: Captured(traced, warm_ups=1))
    stacked.advance(ROUNDS)
    expected = loop.progress.traffic
    traffic = stacked.progress.traffic
    finding.expect(
        expected == traffic, f"the traffic differs with {where}: {expected} and {traffic}"
    )
    diverged = loop.progress.diverged or stacked.progress.diverged
    why = loop.progress.complaint or stacked.progress.complaint
    finding.expect(not diverged, f"it diverges with {where}: {why}")
    return loop, stacked


def _compare_packed(tested: Candidate, finding: Finding) -> tuple[float, int]:
    """Return the largest gap between a run in a pack and the same run alone; the number of runs.

    The runs differ in seed, learning rate, and each number in which packed configurations may
    differ.
    """
    numbers = [field for field in tested.entry.fields if field.packable and field.kind == "float"]
    changes = [next(alternatives(tested, field), {}) for field in numbers]
    # Hyper-parameters and fields of the setting of each run.
    members: list[tuple[Values, dict[str, Any]]] = [
        ({}, {}),
        ({}, {"seed": 1}),
        ({}, {"lr": 0.05}),
    ]
    together: dict[str, Value] = {}
    for change in changes:
        together.update(change)
    # One member changes all numbers if they are allowed together: it shows any number that is
    # handled wrongly.
    if tested.allows(together):
        changes = [together]
    members += [(values, {}) for values in changes if values]
    pack = [tested.simulate("stacked", values, **fields) for values, fields in members]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reported below
        failures = advance_together(pack, ROUNDS)
    names = ", ".join(field.name for field in numbers)
    errors = [*failures.values()]
    trainer = pack[0].trainer
    assert isinstance(trainer, Stacked)
    apart = trainer.apart
    if apart and not _of_public_samples(apart):
        errors.append(apart)
    for error in errors:
        with finding.case(f"packable, but fails with tensors: {names}" if numbers else "in a pack"):
            raise error
    gaps = []
    for (values, fields), run in zip(members, pack, strict=True):
        gaps.append(largest_gap(tested.run(ROUNDS, "loop", values, **fields), run))
    largest = max(gaps)
    differing = f" that differ in {names}" if names else ""
    fault = f"the models differ by {largest:.1e} in a pack of runs{differing}"
    finding.expect(largest <= TOLERANCES["largest gap"], fault)
    return largest, len(members)


def _of_public_samples(error: Exception) -> bool:
    """Tell whether members train one by one because each has public samples of its own."""
    return any(isinstance(link, PublicOfSeveralRuns) for link in chain(error))


def reductions(tested: Candidate, finding: Finding) -> None:
    """Check that the algorithm equals others at its limits, with both backends.

    By default it must differ from FedAvg.

    Raises:
        NotApplicable: no limit is known.
    """
    if not tested.built_in:
        raise NotApplicable("no limits are known of an algorithm from outside")
    shown = []
    for limit in LIMITS.get(tested.entry.name, ()):
        models: tuple[str, ...] = LIMIT_MODELS
        if limit.without_batchnorm:
            models = tuple(model for model in models if "+bn" not in model)
        cases = itertools.product(models, ("loop", "stacked"))
        largest = max(_limit_gap(tested, limit, model, backend) for model, backend in cases)
        finding.expect(
            largest <= limit.tolerance,
            f"{limit}: models differ by {compared(largest, limit.tolerance)}",
        )
        shown.append(f"{limit}: {largest:.1e}" if largest else f"{limit}: exactly")
    if tested.entry.name != "fedavg":
        plain = models_of(candidate("fedavg").run(4, model=tested.model()))["", None]
        effect = max(gap(model, plain) for model in models_of(tested.run(4)).values())
        finding.expect(
            effect > SMALLEST_EFFECT,
            f"with its defaults it is FedAvg: the models differ by {effect:.1e}",
        )
        shown.append(f"differs from fedavg by {effect:.1e}")
    if not shown:
        raise NotApplicable("other algorithms reduce to this one")
    finding.measured = "; ".join(shown)


def _limit_gap(tested: Candidate, limit: Limit, model: str, backend: str) -> float:
    """Return the largest difference between the models of the limit's two rows.

    A personal model is compared with the same client's model or, if there is none, with the shared
    one.
    """
    precision = "fp64" if limit.tolerance else "fp32"
    if not limit.without_batchnorm:
        model = candidate(limit.other).model(tested.model(model))
    fields = {
        "model": model,
        "precision": precision,
        "exact_model": limit.without_batchnorm,
        **limit.fields,
    }
    run = tested.run(limit.rounds, backend, limit.values, sizes=limit.sizes, **fields)
    other = candidate(limit.other).run(
        limit.rounds, backend, limit.other_values, sizes=limit.other_sizes, **fields
    )
    row, other_row = limit.rows
    expected = models_of(other)
    gaps = []
    for (suffix, client), own in models_of(run).items():
        if suffix == row:
            others = expected.get((other_row, client)) or expected[other_row, None]
            gaps.append(gap(own, others))
    return max(gaps)


def resume(tested: Candidate, finding: Finding) -> None:
    """Check that two rounds, a save and two more rounds equal four rounds, bit for bit.

    Cover both backends, and every choice among the algorithm's own forms.
    """
    fields: dict[str, Any] = {"precision": "fp32", "model": "mlp+bn"}
    cases: list[tuple[str, Values]] = [("loop", {}), ("stacked", {})]
    cases += [("loop", values) for values in tested.other_choices()]
    for backend, values in cases:
        where = assignments({"backend": backend, **values})
        with finding.case(where):
            uninterrupted = tested.run(4, backend, values, **fields)
            if uninterrupted.progress.diverged:
                why = uninterrupted.progress.complaint
                finding.expect(False, f"it diverges with {where}: {why}")
                continue
            resumed = tested.resumed(backend, values, **fields)
            restored = resumed.round == 4 and resumed.backend == backend
            finding.expect(restored, "the state or its backend was not restored")
            difference = f"models by {largest_gap(uninterrupted, resumed):.1e}{tested.place}"
            finding.expect(
                identical(uninterrupted, resumed),
                f"2 + 2 rounds differ from 4 ({where}): {difference}",
            )
    verdict = "" if finding.problems else "2 + 2 rounds equal 4 bit for bit, "
    finding.measured = f"{verdict}{len(cases)} cases"


def learns(tested: Candidate, finding: Finding) -> None:
    """Check that every row ends above chance, and that all losses are finite.

    Rows of personal models are included.
    """
    simulation = tested.run(LEARNING_ROUNDS, participation=1.0)
    finding.expect(not simulation.progress.diverged, f"it diverges in round {simulation.round}")
    shown = []
    for suffix, curve in simulation.progress.curves.items():
        row = tested.entry.rows.get(suffix, suffix)
        accuracy = [value for _, metric, value in curve if metric == "accuracy"][-1]
        chance = 1 / INFO.num_classes
        lost = guesses(accuracy, chance, TEST_SAMPLES, shortened=False)
        finding.expect(
            not lost,
            f"{row}: accuracy {accuracy:.2f} after {LEARNING_ROUNDS} rounds, guessing gives 0.33",
        )
        losses = [value for _, metric, value in curve if metric == "loss"]
        finding.expect(all(map(math.isfinite, losses)), f"{row}: a loss is not finite")
        shown.append(f"{accuracy:.2f}")
    finding.measured = (
        f"accuracy {' and '.join(shown)} after {LEARNING_ROUNDS} rounds; guessing 0.33"
    )
