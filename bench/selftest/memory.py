"""Check `memory`: what the server, messages, uploads and memories hold is bounded, and is nobody's data."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bench.engine.pytree import leaves
from bench.engine.simulation import Simulation
from bench.selftest.candidate import Candidate
from bench.selftest.certify import Finding
from bench.selftest.communication import amount, letters_of
from bench.selftest.witness import Log, Witness, watch

ROUNDS = 12  # more than any buffer holds by default
NEAR = 1e-9


def check(candidate: Candidate, finding: Finding) -> None:
    """Twelve watched rounds at half participation."""
    simulation = candidate.simulate(wrap=watch, rounds=ROUNDS, participation=0.5)
    simulation.advance(1)
    _memories_of_participants(simulation, finding)
    simulation.advance(ROUNDS - 1)
    witness = simulation.algorithm
    assert isinstance(witness, Witness)
    log, size = witness.log, letters_of(candidate, {}, simulation)["P"]
    servers = [_floats({"params": server.params, "extra": dict(server.extra)}) for server in log.servers]
    growing = all(later > earlier for earlier, later in pairwise(servers))
    finding.expect(
        not growing, f"the server grows every round, from {servers[0] / size:.3g} to {servers[-1] / size:.3g} P"
    )
    _no_data(simulation, log, finding)
    kept = max((_floats(memory) for memory in simulation.memories.values()), default=0)
    _as_declared(candidate, simulation, kept, finding)
    sent = max(map(_floats, log.uploads), default=0)
    received = max(map(_floats, log.messages), default=0)
    finding.measured = (
        f"server {servers[-1] / size:.3g} P, message {received / size:.3g} P, upload {sent / size:.3g} P, "
        f"a client keeps {kept / size:.3g} P"
    )


def _floats(tree: Any) -> int:
    """Numbers in the distinct tensors of a tree."""
    distinct = {id(tensor): tensor for tensor in leaves(tree)}
    return sum(tensor.numel() for tensor in distinct.values())


def _memories_of_participants(simulation: Simulation, finding: Finding) -> None:
    """After a round: only those that took part have one."""
    wanted = set(simulation.participants(1))
    held = set(simulation.memories)
    finding.expect(held == wanted, f"memories are held of clients {sorted(held)}, not of {sorted(wanted)}")


def _no_data(simulation: Simulation, log: Log, finding: Finding) -> None:
    """No client's sample in anything that leaves a client or stays on the server."""
    samples = torch.cat([simulation.federation.data(index).x for index in simulation.federation.clients]).flatten(1)
    for what, trees in (
        ("an upload", log.uploads),
        ("a message", log.messages),
        ("the server", [{"params": server.params, "extra": dict(server.extra)} for server in log.servers[-1:]]),
    ):
        found = any(_holds(tensor, samples) for tree in trees for tensor in leaves(tree))
        finding.expect(not found, f"{what} holds a client's sample: data must stay with its client")


def _holds(tensor: Tensor, samples: Tensor) -> bool:
    """Whether any row as long as a sample is a sample."""
    length = samples.shape[1]
    if not tensor.numel() or tensor.numel() % length:
        return False
    rows = tensor.detach().to(samples).reshape(-1, length)
    apart = torch.cdist(rows, samples, compute_mode="donot_use_mm_for_euclid_dist")  # products would round too much
    return bool((apart < NEAR).any())


def _as_declared(candidate: Candidate, simulation: Simulation, kept: int, finding: Finding) -> None:
    """What a client keeps, against the registry's words: `nothing`, a thing, or a thing and its size."""
    if not candidate.built_in:
        return
    words = candidate.entry.keeps
    if words.startswith("nothing"):
        finding.expect(not kept, f"the entry says a client keeps nothing, it keeps {kept} numbers")
        return
    finding.expect(kept > 0, f"the entry says a client keeps {words!r}, it keeps nothing")
    _, comma, size = words.rpartition(", ")
    if comma:
        wanted = amount(size, letters_of(candidate, {}, simulation), 1)
        finding.expect(kept == wanted, f"a client keeps {kept} numbers, where {words!r} is {wanted:g}")
