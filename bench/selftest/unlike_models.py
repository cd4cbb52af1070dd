"""The `unlike_models` check: clients with models of their own, dealt by `client_models`."""

from __future__ import annotations

from typing import Any

from bench.selftest.candidate import Candidate
from bench.selftest.certify import Finding, NotApplicable, compared
from bench.selftest.toy import identical, largest_gap

ROUNDS = 3
TOLERANCE = 1e-10  # in float64
MODELS = ("mlp", "cnn_digits")  # of 64 and 128 features
COMMON = "+fd32"


def unlike_models(tested: Candidate, finding: Finding) -> None:
    """Check runs whose clients have models of their own.

    Dealt models that are equal give the run of one model: to the last bit on the loop, within the
    tolerance in stacks. On unlike models, loop and stacks agree, and a run resumes bit for bit.

    Raises:
        NotApplicable: the algorithm combines the weights of all clients.
    """
    if not tested.entry.unlike_models:
        raise NotApplicable("it combines the weights of all clients")
    form = COMMON if "common_features" in tested.needs else ""
    names = [tested.model(name + form) for name in MODELS]
    unlike: dict[str, Any] = {"model": names[0], "client_models": "/".join(names)}
    gap = max(_equal_models(tested, finding, names[0]), _unlike_stacks(tested, finding, unlike))
    resumed = identical(tested.run(4, **unlike), tested.resumed(**unlike))
    finding.expect(resumed, "2 + 2 rounds of unlike models differ from 4")
    finding.expect(gap <= TOLERANCE, f"models differ by {compared(gap, TOLERANCE)}")
    verdict = "" if finding.problems else "equal models as one model bit for bit, "
    finding.measured = f"{verdict}largest gap of stacks {compared(gap, TOLERANCE)}"


def _equal_models(tested: Candidate, finding: Finding, model: str) -> float:
    """Return the largest gap between stacks of one model, dealt or not; the loop is to be exact."""
    plain = tested.run(ROUNDS, "loop", model=model)
    dealt = tested.run(ROUNDS, "loop", model=model, client_models=f"{model}/{model}")
    finding.expect(
        identical(plain, dealt), "two clients' models that are equal are not the run of one model"
    )
    stacked = tested.run(ROUNDS, "stacked", model=model)
    dealt = tested.run(ROUNDS, "stacked", model=model, client_models=f"{model}/{model}")
    return largest_gap(stacked, dealt)


def _unlike_stacks(tested: Candidate, finding: Finding, unlike: dict[str, Any]) -> float:
    """Return the largest gap between loop and stacks of unlike models."""
    loop = tested.run(ROUNDS, "loop", **unlike)
    stacked = tested.run(ROUNDS, "stacked", **unlike)
    traffic = loop.progress.traffic == stacked.progress.traffic
    finding.expect(traffic, "traffic of unlike models differs between Loop and Stacked")
    return largest_gap(loop, stacked)
