"""Check `communication`: every round exchanges what `about` states, counted tensor by tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from bench.engine.simulation import Simulation
from bench.selftest.candidate import Candidate, Values
from bench.selftest.certify import Finding
from bench.selftest.toy import models_of

ROUNDS = 4
FLOAT64 = 8  # bytes
WITHOUT = " without BatchNorm"
Letters = Mapping[str, float]


def check(candidate: Candidate, finding: Finding) -> None:
    """Floats to and from each client of a round, and exchanges, in each of four rounds.

    A built-in one also with the configurations whose traffic its words tell apart: M of 1 and 2, a warm-up.
    """
    forms: list[dict[str, Any]] = [{}]
    if candidate.built_in:
        special = ({"buffer": 1}, {"buffer": 2}, {"steps": 1}, {"warmup_rounds": 2})
        forms += [values for values in special if set(values) <= set(candidate.entry.defaults())]
    for values in forms:
        simulation = candidate.simulate(values=values)
        letters = letters_of(candidate, values, simulation)
        rounds = _count(simulation)
        if candidate.built_in:
            for number, counts in enumerate(rounds, 1):
                _compare(candidate, values, letters, number, counts, finding)
        if not values:
            shown = []
            for way in ("down", "up"):
                sizes = [f"{counts[way] / letters['P']:.5g}" for counts in rounds]
                shown.append(f"{way} {sizes[0] if len(set(sizes)) == 1 else ', '.join(sizes)} P")
            finding.measured = "; ".join(shown) + (", as declared" if candidate.built_in else " a round")


def _count(simulation: Simulation) -> list[dict[str, float]]:
    """What each round adds to the counters: exchanges, and floats down and up per client."""
    rounds, before = [], asdict(simulation.progress.traffic)
    for number in range(1, ROUNDS + 1):
        simulation.advance(1)
        after, clients = asdict(simulation.progress.traffic), len(simulation.participants(number))
        added = {name: after[name] - before[name] for name in after}
        floats = {way: added[f"bytes_{way}"] / FLOAT64 / clients for way in ("down", "up")}
        rounds.append({"communications": added["communications"], **floats})
        before = after
    return rounds


def letters_of(candidate: Candidate, values: Values, simulation: Simulation) -> dict[str, float]:
    """The letters of `About` for this model and these hyper-parameters, t left out.

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
    candidate: Candidate, values: Values, letters: Letters, number: int, counts: Letters, finding: Finding
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


def amount(words: str, letters: Letters, round: int) -> float:
    """The number that the words of `About` on traffic stand for in a round.

    Args:
        words: clauses joined by "; ", of which the last that speaks of the round counts. A clause is a sum such as
            `min(t-1, M) (P + 1)`, after which may stand " without BatchNorm", and " from round N" or " from round N if
            M > 1"; or "A in round 1, then B".
        letters: P and the others; `Pn` is the model without its BatchNorm layers.
        round: from 1; the letter t.

    Raises:
        ValueError: the words cannot be read, or name an unknown letter.
    """
    value = 0.0
    for clause in words.split("; "):
        first, then, later = clause.partition(" in round 1, then ")
        sum_, _, since = (first if not then or round == 1 else later).partition(" from round ")
        start, condition, _ = since.partition(" if M > 1")
        if round >= int(start or 1) and not (condition and letters["M"] <= 1):
            value = _sum(sum_, {**letters, "t": round})
    return value


def _sum(text: str, letters: Letters) -> float:
    """The value of a sum of products, whose factors may stand side by side."""
    if text.endswith(WITHOUT):
        text, letters = text.removesuffix(WITHOUT), {**letters, "P": letters["Pn"]}
    code = ""
    for before, token in pairwise(["", *re.findall(r"\d+|[A-Za-z]+|\S", text.replace("^", "**"))]):
        product = re.fullmatch(r"\w+|\)", before) and before != "min" and re.fullmatch(r"\w+|\(", token)
        code += f"*{token}" if product else token
    try:
        return float(eval(code, {"__builtins__": {}, "min": min}, dict(letters)))
    except (NameError, SyntaxError) as error:
        raise ValueError(f"cannot read {text!r}: {error}") from error
