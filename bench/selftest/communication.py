"""Check `communication`: every round exchanges what the registry says, counted tensor by tensor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.engine.simulation import Simulation
from bench.selftest.amounts import amount
from bench.selftest.candidate import Candidate, Values
from bench.selftest.outcome import Finding
from bench.selftest.toy import models_of

ROUNDS = 4
FLOAT64 = 8  # bytes
Counts = dict[str, float]
Letters = dict[str, float]


def check(candidate: Candidate, finding: Finding) -> None:
    """Floats to and from each client of a round, and exchanges, in each of four rounds."""
    for values in _forms(candidate):
        simulation = candidate.simulate(values=values)
        letters = letters_of(candidate, values, simulation)
        rounds = _rounds(simulation)
        if candidate.built_in:
            for number, counts in enumerate(rounds, 1):
                _compare(candidate, values, letters, number, counts, finding)
        if not values:
            finding.measured = _shown(rounds, letters["P"], candidate.built_in)


def _forms(candidate: Candidate) -> list[Values]:
    """Configurations whose traffic the registry's words tell apart: the defaults, M of 1 and 2, a warm-up."""
    forms: list[Values] = [{}]
    if candidate.built_in:
        tried: list[dict[str, Any]] = [{"buffer": 1}, {"buffer": 2}, {"steps": 1}, {"warmup_rounds": 2}]
        forms += [values for values in tried if set(values) <= set(candidate.entry.defaults())]
    return forms


def _rounds(simulation: Simulation) -> list[Counts]:
    """What each round adds to the counters: exchanges, and floats down and up per client."""
    found, before = [], asdict(simulation.progress.traffic)
    for number in range(1, ROUNDS + 1):
        simulation.advance(1)
        after, clients = asdict(simulation.progress.traffic), len(simulation.participants(number))
        added = {name: after[name] - before[name] for name in after}
        floats = {way: added[f"bytes_{way}"] / FLOAT64 / clients for way in ("down", "up")}
        found.append({"communications": added["communications"], **floats})
        before = after
    return found


def letters_of(candidate: Candidate, values: Values, simulation: Simulation) -> Letters:
    """The registry's letters for this model and these hyper-parameters, t left out.

    `Pn` is the model without BatchNorm layers. G is FedGen's generator: a hidden layer on noise and one-hot label, a
    normalisation of two weights and two running statistics, and a layer to the features.
    """
    net, chosen = simulation.net, {**candidate.defaults(), **values}
    sizes = {name: value.numel() for name, value in next(iter(models_of(simulation).values())).items()}
    hidden, noise = (int(chosen.get(name) or 0) for name in ("hidden_dim", "noise_dim"))
    return {
        "P": sum(sizes.values()),
        "Pn": sum(size for name, size in sizes.items() if name not in net.batchnorm),
        "C": net.num_classes,
        "D": net.feature_dim,
        "G": (noise + net.num_classes + 1) * hidden + 4 * hidden + (hidden + 1) * net.feature_dim,
        "M": int(chosen.get("buffer") or 0),
        "J": int(chosen.get("steps") or 0),
    }


def _compare(
    candidate: Candidate, values: Values, letters: Letters, number: int, counts: Counts, finding: Finding
) -> None:
    entry, chosen = candidate.entry, {**candidate.defaults(), **values}
    if number <= int(chosen.get("warmup_rounds") or 0):
        letters = {**letters, "J": 0}
    declared = {"down": amount(entry.down, letters, number), "up": amount(entry.up, letters, number)}
    # One exchange for local training, one for each request beyond it; none where nothing is sent.
    declared["communications"] = 1 + letters["J"] if any(declared.values()) else 0
    where = "".join(f", {name}={value}" for name, value in values.items())
    for name, wanted in declared.items():
        words = getattr(entry, name, "one exchange and J requests")
        finding.expect(
            counts[name] == wanted,
            f"round {number}{where}: {counts[name]:g} {name}, where {words!r} is {wanted:g}"
            f" (P = {letters['P']:g}, C = {letters['C']:g})",
        )


def _shown(rounds: list[Counts], size: float, declared: bool) -> str:
    """Down and up in model sizes, a number a round where they differ from round to round."""
    parts = []
    for way in ("down", "up"):
        numbers = [f"{counts[way] / size:.5g}" for counts in rounds]
        parts.append(f"{way} {numbers[0] if len(set(numbers)) == 1 else ', '.join(numbers)} P")
    return "; ".join(parts) + (", as declared" if declared else " a round")
