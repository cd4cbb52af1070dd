"""Seconds of an algorithm's steps, rounds and evaluations here, measured with made-up samples.

`python -m bench.engine.pace THREADS` reads a JSON list of `[algorithm, hyper-parameters, setting]`
and writes a line of JSON for each, so that a dry run has the figures without importing torch.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple, replace
from typing import Any

from algorithms import build, entry
from bench.data import info
from bench.data.embedded import made_up
from bench.engine.process import prepare_process
from bench.engine.simulation import Simulation
from bench.errors import with_its_kind
from bench.models import weights
from bench.planning.cost_model import Pace
from search_spaces import Setting

# First rounds, not counted: later ones have all teachers of a buffer of five, and generators.
SETTLED = 6
# The least to time after those.
ROUNDS = 5
SECONDS = 0.05
MORE = 4  # steps, batches and server steps by which two rounds differ
TESTS = 200  # samples of an evaluation
LONGEST = 0.4  # seconds after which two rounds are enough
# If FEW samples of a round take more than SLOW seconds, larger batches are not timed.
FEW = 4
SLOW = 0.1
HELD_OUT = 32  # validation samples
ENDLESS = 10**9


def measure(algorithm: str, values: Mapping[str, Any], setting: Setting) -> Pace:
    """Time short rounds of one client on the CPU.

    There is a plain one, and others that differ from it in one respect each. The setting gives the
    data set's shapes, the model, the batches and the optimiser. Of clients with models of their own
    it is the mean over the models as they are dealt.
    """
    dealt = setting.models_of_clients
    if len(dealt) > 1:
        settings = {name: replace(setting, client_models=name) for name in dealt}
        paces = {name: measure(algorithm, values, own) for name, own in settings.items()}
        figures = [astuple(paces[name]) for name in dealt]
        return Pace(*map(statistics.fmean, zip(*figures, strict=True)))
    slow = _slow_pace(algorithm, values, setting)
    if slow is not None:
        return slow
    plain = _round_seconds(algorithm, values, setting)

    def further_seconds(**changes: Any) -> float:
        """Return by how many seconds a changed round is longer than the plain one."""
        return max(0.0, _round_seconds(algorithm, values, setting, **changes) - plain)

    step = further_seconds(epochs=1 + MORE) / MORE
    batch = further_seconds(batches=1 + MORE) / MORE
    evaluated = TESTS
    if setting.validation_fraction:
        evaluated += HELD_OUT
    sample = further_seconds(evaluated=True) / evaluated
    server = 0.0
    if entry(algorithm).server_steps:
        server = further_seconds(server_steps=1 + MORE) / MORE
    return Pace(max(0.0, plain - step), max(0.0, batch - step), step, sample, server)


def _slow_pace(algorithm: str, values: Mapping[str, Any], setting: Setting) -> Pace | None:
    """Time rounds of few samples, if a whole batch would take too long; else return None.

    What a round costs beside its samples (a teacher's answers, the server's steps) does not grow
    with them, so rounds of two sizes are timed.
    """
    few = min(FEW, setting.batch_size)
    of_few = replace(setting, batch_size=few)
    seconds = _round_seconds(algorithm, values, of_few)
    if seconds > SLOW:  # perhaps for a moment only, and the pace is kept
        seconds = min(seconds, _round_seconds(algorithm, values, of_few))
    if seconds <= SLOW:
        return None
    fewer = (few + 1) // 2
    of_fewer = replace(setting, batch_size=fewer)
    sample = (seconds - _round_seconds(algorithm, values, of_fewer)) / max(1, few - fewer)
    if few * sample <= SLOW:
        return None
    server = 0.0
    if entry(algorithm).server_steps:
        server = max(0.0, _round_seconds(algorithm, values, of_few, server_steps=2) - seconds)
    fixed = max(0.0, seconds - few * sample)
    return Pace(fixed, 0.0, setting.batch_size * sample, sample / 3, server)


def _round_seconds(
    algorithm: str,
    values: Mapping[str, Any],
    setting: Setting,
    epochs: int = 1,
    batches: int = 1,
    evaluated: bool = False,
    server_steps: int = 1,
) -> float:
    """Return the median seconds of one client's rounds.

    The first half is left out, but at most the first `SETTLED` rounds. This thread's processor time
    counts, because other work of the machine would hide differences of wall-clock time. For
    operators with several threads it is the time until all have done their share.

    Raises:
        RuntimeError: the run diverged, and there is nothing left to time.
    """
    constants = info(setting.dataset)
    auxiliary = setting.auxiliary_per_class * constants.num_classes
    if setting.public_set is not None:
        _, auxiliary = setting.public_set
    held_out = HELD_OUT if setting.validation_fraction else 0
    dataset, split = made_up(constants, 1, batches * setting.batch_size, auxiliary, held_out, TESTS)
    counted = entry(algorithm).server_steps
    if counted:
        values = {**values, counted: server_steps}
    built = build(algorithm, **values)
    timed = _of_one_client(setting, epochs, evaluated)
    run = Simulation(built, timed, 0, dataset, constants, split, backend="loop")
    times: list[float] = []
    while len(times) < SETTLED + ROUNDS or sum(times[SETTLED:]) < SECONDS:
        began = time.thread_time()
        run.advance()
        times.append(time.thread_time() - began)
        if run.done:
            raise RuntimeError(f"{algorithm} diverged on made-up samples: {run.progress.complaint}")
        if len(times) > 1 and sum(times) > LONGEST:
            break
    return statistics.median(times[min(SETTLED, len(times) // 2) :])


def _of_one_client(setting: Setting, epochs: int, evaluated: bool) -> Setting:
    """Return the setting of timed rounds: one client, which has all samples, and no last round."""
    own = [_without_weights(name) for name in setting.models_of_clients]
    return replace(
        setting,
        model=_without_weights(setting.model),
        client_models="/".join(own) if setting.client_models else "",
        partition="iid",
        alpha=None,
        num_clients=1,
        participation=1.0,
        rounds=ENDLESS,
        evaluate_every=1 if evaluated else ENDLESS,
        local_epochs=epochs,
        step_rule="epochs",
        lr=1e-4,
        fraction=1.0,
        local_test_fraction=0.0,
        local_validation_fraction=0.0,
        new_clients=0.0,
        finetune_steps=0,
        start_from="",
        public="",
    )


def _without_weights(model: str) -> str:
    """Return the model of the same form that starts from drawn weights."""
    base, *forms = model.split("+")
    if weights.starts_from_them(base):
        base = weights.DRAWN
    return "+".join([base, *forms])


def main() -> int:
    """Measure each entry of the list on stdin, and write its figures, or its `error`, in a line."""
    out = sys.stdout
    sys.stdout = sys.stderr  # algorithms from outside may print, too
    prepare_process(int(sys.argv[1]))
    for algorithm, values, fields in json.load(sys.stdin):
        try:
            line: dict[str, Any] = asdict(measure(algorithm, values, Setting(**fields)))
        except Exception as error:
            line = {"error": with_its_kind(error)}
        out.write(json.dumps(line) + "\n")
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
