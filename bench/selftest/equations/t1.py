"""T1: the mean of all clients' latest models, evaluated beside the base's."""

from __future__ import annotations

from bench.selftest.equations.averaging import fedprox_checks
from bench.selftest.equations.builders import MEAN_SOURCE, ROUND_3, TWO, Options, fedavg_loss, loss_check
from bench.selftest.equations.checks import EVERYONE, Check, Limit, Make, gap
from bench.selftest.equations.fedgkd import EQ_4, fedgkd_checks, fedgkd_loss
from bench.selftest.equations.formulas import weighted
from bench.selftest.equations.lab import SIZES
from bench.selftest.equations.run import Run

SOURCE = "FedKF, section 4.1"


def t1_check(unvisited: str, options: Options) -> Check:
    """The evaluated models after each round: the base's mean, and that of all clients' latest models."""

    def check(make: Make) -> float:
        run, gaps = Run(make, {**options, "t1_unvisited": unvisited}), []
        slots = dict.fromkeys(SIZES, run.initial) if unvisited == "w0" else {}
        for clients in TWO:
            ended = run.round(clients)
            slots |= ended
            mean = weighted(ended, SIZES)
            gaps.append(gap(run.algorithm.evaluated(run.server), {"": mean, "_t1": weighted(slots, SIZES)}))
            gaps.append(gap(dict(run.message()["params"]), mean))
        return max(gaps)

    return Check(f"both evaluated models, 2 rounds, t1_unvisited={unvisited}", SOURCE, check)


def t1_checks(options: Options) -> tuple[Check, ...]:
    """Both rules for clients that were never drawn, and full participation."""

    def of_everyone(make: Make) -> float:
        run, gaps = Run(make, options), []
        for _ in range(2):
            mean = weighted(run.round(tuple(SIZES)), SIZES)
            gaps.append(gap(run.algorithm.evaluated(run.server), {"": mean, "_t1": mean}))
        return max(gaps)

    everyone = Check("every client in every round: both evaluated models are one", SOURCE, of_everyone)
    return (t1_check("skip", options), t1_check("w0", options), everyone)


CHECKS: dict[str, tuple[Check, ...]] = {
    "fedavg_t1": (loss_check("loss and gradient, round 3", MEAN_SOURCE, fedavg_loss, ROUND_3), *t1_checks({})),
    "fedprox_t1": (*fedprox_checks(), *t1_checks({"mu": 0.5})),
    "fedgkd_t1": (*fedgkd_checks(fedgkd_loss, EQ_4), *t1_checks({"gamma": 0.2, "buffer": 2})),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedavg_t1": (Limit({}), Limit({}, rows=("_t1", ""), fields=EVERYONE)),
    "fedprox_t1": (Limit({}, "fedprox"), Limit({"mu": 0.0}), Limit({}, "fedprox", rows=("_t1", ""), fields=EVERYONE)),
    "fedgkd_t1": (Limit({}, "fedgkd"), Limit({"gamma": 0.0}), Limit({}, "fedgkd", rows=("_t1", ""), fields=EVERYONE)),
}
