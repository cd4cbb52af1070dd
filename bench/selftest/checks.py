"""The checks by name. Imports neither torch nor ray."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One property that every algorithm must have.

    Args:
        module: of this package; its `check(candidate, finding)` adds what it finds.
        summary: what holds.
        look: where to look when it does not.
    """

    module: str
    summary: str
    look: str


CHECKS = {
    "contract": Check(
        "contract",
        "the registry's entry, the dataclass and every hook are what the contract says",
        "algorithms/base.py, which describes each hook, and the algorithm's entry or its fields",
    ),
    "backends": Check(
        "backends",
        "clients one by one and stacked give the same models and the same traffic",
        "the pure hooks (before_step, local_loss, upload): no draws, no `if` or `.item()` on data, no state",
    ),
    "reductions": Check(
        "reductions",
        "at its limits it is another algorithm, bit for bit where the arithmetic is the same",
        "what is added when its weight is 0: a term that is not multiplied by it, a draw that moves the data",
    ),
    "resume": Check(
        "resume",
        "two rounds, a save and two rounds more equal four rounds bit for bit",
        "state outside server.extra and memories, or draws from anything but `generator` and fed.stream(...)",
    ),
    "learns": Check(
        "learns",
        "it beats guessing clearly on a toy problem, and stays finite",
        "the sign and the size of each term of the loss, and the server's step",
    ),
    "communication": Check(
        "communication",
        "messages, uploads and gradient requests are what the entry declares, round by round",
        "`down` and `up` of the entry; tensors sent twice as copies, where one object would travel once",
    ),
    "hyperparameters": Check(
        "hyperparameters",
        "each one changes the result, and values out of range are refused in plain words",
        "whether the field is read at all, and its bounds in `hyper(...)`",
    ),
    "memory": Check(
        "memory",
        "what is kept and sent is bounded and holds nobody's data",
        "server.extra and what `upload` returns",
    ),
    "equations": Check(
        "formulas",
        "losses, gradients and server steps equal the printed formulas, written anew",
        "the formula's source, named with each difference",
    ),
}
