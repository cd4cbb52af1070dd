"""The `communication` and `memory` checks: traffic and stored state, counted tensor by tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from algorithms.base import Data, Local, LocalPlan, Memory, Message, Net, Plugin, Upload
from bench.engine.pytree import leaves, num_bytes
from bench.engine.simulation import Simulation
from bench.selftest.candidate import Candidate, Values
from bench.selftest.certify import Finding, assignments
from bench.selftest.contract_monitor import tree_of
from bench.selftest.toy import models_of

ROUNDS = 4
MEMORY_ROUNDS = 12  # more than any buffer holds by default
NEAR = 1e-9  # of a sample, in each of its numbers
FLOAT64 = 8  # bytes
WITHOUT = " without BatchNorm"
AT_MOST = "at most "  # before the size of a message whose rank depends on the data
Symbols = Mapping[str, float]


def communication(candidate: Candidate, finding: Finding) -> None:
    """Check the number of floats to and from each client, and of exchanges, in each of four rounds.

    A built-in algorithm is also checked with values for which it declares other traffic: M of 1 and
    2, a warm-up.
    """
    configurations: list[dict[str, Any]] = [{}]
    if candidate.built_in:
        special = ({"buffer": 1}, {"buffer": 2}, {"steps": 1}, {"warmup_rounds": 2})
        configurations += [
            values for values in special if set(values) <= set(candidate.entry.defaults())
        ]
    traffic: list[str] = []
    for values in configurations:
        simulation = candidate.simulate(values=values)
        symbols = symbol_values(candidate, values, simulation)
        rounds = _traffic_by_round(simulation)
        if candidate.built_in:
            for number, counts in enumerate(rounds, 1):
                _compare_traffic(candidate, values, symbols, number, counts, finding)
        if not values:
            traffic = [f"{way} {rounds[-1][way] / symbols['P']:.5g} P" for way in ("down", "up")]
    declared = ", all as declared" if candidate.built_in and not finding.problems else ""
    finding.measured = f"{'; '.join(traffic)} in round {ROUNDS}{declared}"


def _traffic_by_round(simulation: Simulation) -> list[dict[str, float]]:
    """Run the rounds; return the exchanges of each, and its floats down and up per client.

    Public samples, which a client is sent once in a run, are left out.
    """
    rounds = []
    before = asdict(simulation.progress.traffic)
    holders = 0
    for number in range(1, ROUNDS + 1):
        simulation.advance(1)
        after = asdict(simulation.progress.traffic)
        clients = len(simulation.participants(number))
        added = {name: after[name] - before[name] for name in after}
        new_holders = len(simulation.progress.public_holders) - holders
        if new_holders:
            added["bytes_down"] -= new_holders * num_bytes(simulation.fed.clients_public.sent)
        holders += new_holders
        floats = {way: added[f"bytes_{way}"] / FLOAT64 / clients for way in ("down", "up")}
        rounds.append({"communications": added["communications"], **floats})
        before = after
    return rounds


def symbol_values(candidate: Candidate, values: Values, simulation: Simulation) -> dict[str, float]:
    """Return the numbers that the symbols of `About`, except t, stand for in this run.

    `Pn` is the model without BatchNorm layers. G is FedGen's generator: a hidden layer on noise and
    one-hot label, a normalisation of two weights and two running statistics, and a layer to the
    features.
    """
    net = simulation.net
    configuration = {**candidate.defaults(), **values}
    model = next(iter(models_of(simulation).values()))
    sizes = {name: value.numel() for name, value in model.items()}

    def configured(name: str) -> int:
        return int(configuration.get(name) or 0)

    hidden = configured("hidden_dim")
    wanted = configured("public_samples")
    hidden_layer = (configured("noise_dim") + net.num_classes + 1) * hidden
    normalisation = 4 * hidden
    output_layer = (hidden + 1) * net.feature_dim
    return {
        "P": sum(sizes.values()),
        "Pn": sum(size for name, size in sizes.items() if name not in net.batchnorm),
        "C": net.num_classes,
        "D": net.feature_dim,
        "G": hidden_layer + normalisation + output_layer,
        "M": configured("buffer"),
        "J": configured("steps"),
        "S": min(wanted, len(simulation.fed.public.x)) if wanted else 0,
    }


def _compare_traffic(
    candidate: Candidate,
    values: Values,
    symbols: Symbols,
    number: int,
    counts: Symbols,
    finding: Finding,
) -> None:
    entry = candidate.entry
    configuration = {**candidate.defaults(), **values}
    if number <= int(configuration.get("warmup_rounds") or 0):
        symbols = {**symbols, "J": 0}
    declared = {
        "down": amount(entry.down.removeprefix(AT_MOST), symbols, number),
        "up": amount(entry.up.removeprefix(AT_MOST), symbols, number),
    }
    where = assignments({"round": number, **values})
    # One exchange for local training, one for each further request; none if nothing is sent.
    declared["communications"] = 1 + symbols["J"] if any(declared.values()) else 0
    for name, expected in declared.items():
        words = getattr(entry, name, "one exchange and J requests")
        least = 0 if words.startswith(AT_MOST) else expected
        finding.expect(
            least <= counts[name] <= expected,
            f"{where}: {counts[name]:g} {name}, where {words!r} is {expected:g}"
            f" (P = {symbols['P']:g}, C = {symbols['C']:g})",
        )


def amount(words: str, symbols: Symbols, round: int) -> float:
    """Evaluate the words of `About` on traffic for one round.

    Args:
        words: clauses joined by "; "; the last one that applies to the round counts. A clause is a
            sum such as `min(t-1, M) (P + 1)`, optionally followed by " without BatchNorm", and by "
            from round N" or " from round N if M > 1"; or it is "A in round 1, then B".
        symbols: the values of P and the others; `Pn` is the model without its BatchNorm layers.
        round: counted from 1; the symbol t.

    Raises:
        ValueError: the words cannot be read, or name an unknown symbol.
    """
    value = 0.0
    for clause in words.split("; "):
        first, then, later = clause.partition(" in round 1, then ")
        if then and round > 1:
            first = later
        sum_, _, since = first.partition(" from round ")
        start, condition, _ = since.partition(" if M > 1")
        holds = not condition or symbols["M"] > 1
        if holds and round >= int(start or 1):
            value = _evaluate_sum(sum_, {**symbols, "t": round})
    return value


def _evaluate_sum(text: str, symbols: Symbols) -> float:
    """Evaluate a sum of products, in which factors may be written side by side."""
    if text.endswith(WITHOUT):
        text = text.removesuffix(WITHOUT)
        symbols = {**symbols, "P": symbols["Pn"]}
    tokens = re.findall(r"\d+|[A-Za-z]+|\S", text.replace("^", "**"))
    code = ""
    for before, token in pairwise(["", *tokens]):
        ends_factor = re.fullmatch(r"\w+|\)", before) and before != "min"
        begins_factor = re.fullmatch(r"\w+|\(", token)
        code += f"*{token}" if ends_factor and begins_factor else token
    try:
        return float(eval(code, {"__builtins__": {}, "min": min}, dict(symbols)))
    except (NameError, SyntaxError) as error:
        raise ValueError(f"cannot read {text!r}: {error}") from error


@dataclass(frozen=True)
class UploadMonitor(Plugin):
    """A plug-in that changes nothing, and reports an upload with one of the client's samples."""

    finding: Finding = field(default_factory=Finding, compare=False)

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Check that no tensor of the upload, cut into rows as long as a sample, contains one."""
        upload, new_memory = self.base.upload(net, local, data, message, memory, plan)
        samples = data.x.flatten(1)
        for tensor in leaves(upload):
            if tensor.numel() % samples.shape[1] == 0:
                rows = tensor.detach().to(samples).reshape(-1, 1, samples.shape[1])
                is_sample = ((rows - samples).abs() < NEAR).all(-1)
                self.finding.expect(
                    not is_sample.any(),
                    "an upload holds a client's sample: data must stay with its client",
                )
        return upload, new_memory


def memory(candidate: Candidate, finding: Finding) -> None:
    """Check for twelve rounds that the server is bounded, and a client's memory as declared.

    Half of the clients participate.

    No upload may hold a client's sample.
    """
    simulation = candidate.simulate(
        wrap=lambda algorithm: UploadMonitor(algorithm, finding),
        rounds=MEMORY_ROUNDS,
        participation=0.5,
    )
    servers: list[int] = []
    for _ in range(MEMORY_ROUNDS):
        simulation.advance(1)
        servers.append(num_bytes(tree_of(simulation.server)) // FLOAT64)
    growing = all(later > earlier for earlier, later in pairwise(servers))
    finding.expect(
        not growing, f"the server grows every round, from {servers[0]} to {servers[-1]} floats"
    )
    count = max(num_bytes(memory) // FLOAT64 for memory in simulation.memories.values())
    symbols = symbol_values(candidate, {}, simulation)
    if candidate.built_in:  # `keeps` is `nothing`, a description, or a description and a size
        words = candidate.entry.keeps
        _, comma, floats = words.rpartition(", ")
        if words.startswith("nothing"):
            finding.expect(
                not count, f"the entry says a client keeps nothing, it keeps {count} numbers"
            )
        else:
            finding.expect(count > 0, f"the entry says a client keeps {words!r}, it keeps nothing")
        if comma:
            declared = amount(floats, symbols, 1)
            finding.expect(
                count == declared,
                f"a client keeps {count} numbers, where {words!r} is {declared:g}",
            )
    size = symbols["P"]
    finding.measured = f"server {servers[-1] / size:.3g} P, a client keeps {count / size:.3g} P"
