"""The numbers of a run: what a curve holds, what is read off it, and how each is printed.

A curve holds *metrics*, a value for each evaluated round (`METRICS`; an algorithm may report
further ones of its own). A *number* of a run is one value read off its curve. `NUMBERS` lists those
that tables, boards, the page and the files of rows have; a stored row keeps them only to save time,
and what it lacks is computed from its curve. So a number is added by one entry here, and shows in
boards made before it.

Further numbers have a name by form (`number_named`): `METRIC` or `METRIC@last`, the metric's value
in the last round; `METRIC@50`, in round 50; `METRIC@last10`, the mean of the last ten evaluations;
`METRIC@selected`, in the round of the best validation accuracy, on the clients' own samples if the
metric is of clients; `rounds@70`, the first round whose test accuracy is 70 % or more; `comms@70`,
`down@70`, `up@70` and `steps@70`, the exchanges, bytes and local steps until it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, TypeGuard

# Metric -> round -> value, without values that are no number.
Curve = Mapping[str, Mapping[int, float]]
GrowingCurve = dict[str, dict[int, float]]
Point = tuple[int, str, float | None]
# Reads a number off a curve; None if the curve does not tell it.
Rule = Callable[[Curve], float | None]
# Finds a round of a curve; None if there is none.
RoundRule = Callable[[Curve], int | None]

SMOOTHING = 0.6  # of `ema_accuracy`
LARGEST = 1e100  # of a curve's values; sums and squares of larger ones overflow
RECENT = 10  # evaluations that `last10` averages
# With the client's number behind it, a metric: the accuracy on the client's own test samples.
CLIENT_ACCURACY = "client_accuracy/"


def is_number(value: Any) -> TypeGuard[int | float]:
    """Tell whether a value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Unit:
    """A unit of numbers.

    Args:
        name: in files.
        shown: in tables; empty for a plain number.
        scale: printed number = scale x stored number.
        decimals: digits after the point when printed.
    """

    name: str
    shown: str = ""
    scale: float = 1.0
    decimals: int = 0


FRACTION = Unit("fraction", "%", 100.0, 2)
VARIANCE = Unit("fraction^2", "x 1e-3", 1e3, 3)
NATS = Unit("nats", "nats", 1.0, 4)
ROUNDS = Unit("rounds", decimals=1)
EXCHANGES = Unit("exchanges")
BYTES = Unit("bytes", "MB", 1e-6, 2)
STEPS = Unit("steps")
SECONDS = Unit("seconds", "s", 1.0, 2)
ANY = Unit("any", decimals=4)


@dataclass(frozen=True)
class Number:
    """A number of a run.

    Args:
        name: column of rows; a leaderboard has `<name>_mean`, `_std`, `_low`, `_high` and `_rank`.
        quantity: what is measured, for captions.
        unit: of the stored and of the printed number.
        rule: reads it off a curve; None if it is measured beside the curve, and only the row has
            it.
        short: heading of a table's column, also accepted on the command line; the name if empty.
        of: the round, model or party that it is of; empty if that is obvious.
        better: `higher` or `lower`; empty if neither is better, so that it is not ranked.
        differs_by_seed: whether its values are compared over seeds; costs of whole runs are not.
        optional: whether a finished run may lack it.
        whole: whether it is a whole number.
    """

    name: str
    quantity: str
    unit: Unit
    rule: Rule | None = field(default=None, compare=False)
    short: str = ""
    of: str = ""
    better: str = "higher"
    differs_by_seed: bool = True
    optional: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "short", self.short or self.name)

    @property
    def higher_is_better(self) -> bool:
        """Return whether rank 1 is the largest."""
        return self.better == "higher"

    def value(self, curve: Curve) -> float | int | None:
        """Read the number off a curve.

        None if the curve does not tell it, or if the number is not read off curves.
        """
        value = self.rule(curve) if self.rule else None
        if value is None:
            return None
        return int(value) if self.whole else float(value)


# Rules


def last_round(curve: Curve) -> int | None:
    """Return the last evaluated round; the test set may be left out before a run's last one."""
    return max(curve.get("accuracy") or curve.get("train_loss", {}), default=None)


def best_round(metric: str) -> RoundRule:
    """Make the rule that finds the round of a metric's largest value, the first if several."""

    def rule(curve: Curve) -> int | None:
        values = curve.get(metric, {})
        return max(values, key=lambda at: (values[at], -at), default=None)

    return rule


def reached(target: float) -> RoundRule:
    """Make the rule that finds the first round whose test accuracy is `target` or more."""

    def rule(curve: Curve) -> int | None:
        accuracies = curve.get("accuracy", {})
        rounds = (at for at, value in accuracies.items() if value >= target)
        return min(rounds, default=None)

    return rule


def at_round(number: int) -> RoundRule:
    """Make the rule that finds the round of this number."""
    return lambda curve: number


def value_at(metric: str, find: RoundRule) -> Rule:
    """Make the rule that reads a metric in the round that another rule finds."""

    def rule(curve: Curve) -> float | None:
        at = find(curve)
        return None if at is None else curve.get(metric, {}).get(at)

    return rule


def recent_mean(metric: str) -> Rule:
    """Make the rule that averages the last `RECENT` evaluations of a metric."""

    def rule(curve: Curve) -> float | None:
        values = curve.get(metric, {})
        recent = [values[at] for at in sorted(values)[-RECENT:]]
        return math.fsum(recent) / len(recent) if recent else None

    return rule


def smoothed_accuracy(curve: Curve) -> float | None:
    """Smooth the test accuracy a by e <- 0.6 e + 0.4 a, and return the last e.

    FedNTD's authors print it.
    """
    accuracies = curve.get("accuracy", {})
    if not accuracies:
        return None
    first, *later = sorted(accuracies)
    smooth = accuracies[first]
    for at in later:
        smooth = SMOOTHING * smooth + (1 - SMOOTHING) * accuracies[at]
    return smooth


# The registries


def _metric(name: str, quantity: str, unit: Unit, **facts: Any) -> Number:
    """Make a metric of curves, which as a number is its value in the last round."""
    return Number(name, quantity, unit, value_at(name, last_round), **facts)


_TEST = "accuracy of the global model on the test set"
_OWN_TESTS = "accuracy of the global model on the clients' own tests"
_NEW_TESTS = "accuracy of the global model on the own tests of clients that never train"
_each_client = partial(_metric, unit=FRACTION, optional=True)
_cost = partial(_metric, better="lower", differs_by_seed=False)

METRICS: dict[str, Number] = {
    metric.name: metric
    for metric in (
        _metric("accuracy", _TEST, FRACTION),
        _metric("val_accuracy", "accuracy of the global model on the validation split", FRACTION),
        _metric("loss", "cross entropy of the global model on the test set", NATS, better="lower"),
        _metric("train_loss", "training loss, of the algorithm's own objective", NATS, better=""),
        _metric("local_accuracy", "accuracy of the clients' own models", FRACTION),
        _each_client("amp", _OWN_TESTS, short="client_final", of="weighted by samples"),
        _metric(
            "fm", "variance of accuracy between clients", VARIANCE, better="lower", optional=True
        ),
        _each_client("wlp", f"{_OWN_TESTS}, of the worst client"),
        _each_client("client_mean", f"{_OWN_TESTS}, each client counting once"),
        _each_client(
            "client_std", "standard deviation of accuracy between clients", better="lower"
        ),
        _each_client("client_worst10", f"{_OWN_TESTS}, mean of the worst tenth of the clients"),
        _each_client(
            "client_val_accuracy",
            "accuracy of the global model on the clients' own validation samples",
            of="weighted by samples",
        ),
        _each_client("new_client_accuracy", _NEW_TESTS, of="weighted by samples"),
        _each_client("new_client_mean", f"{_NEW_TESTS}, each client counting once"),
        _each_client(
            "new_client_std",
            "standard deviation of accuracy between clients that never train",
            better="lower",
        ),
        _each_client("new_client_worst10", f"{_NEW_TESTS}, mean of the worst tenth of the clients"),
        _cost(
            "communications",
            "exchanges between server and clients",
            EXCHANGES,
            short="comms",
            whole=True,
        ),
        _cost("bytes_down", "traffic", BYTES, short="down", of="from the server", whole=True),
        _cost("bytes_up", "traffic", BYTES, short="up", of="from the clients", whole=True),
        _cost("train_steps", "local steps of a client", STEPS, short="steps"),
    )
}
# Of accuracies on samples that clients hold, which a run lacks if its clients hold none.
_CLIENT_METRICS = {name for name, metric in METRICS.items() if metric.optional}
# A round that a rule finds.
_ROUND = Number("rounds", "communication rounds", ROUNDS, better="lower")


def _of(metric: Number, name: str, rule: Rule, **facts: Any) -> Number:
    """Make a number of a metric, read by another rule."""
    given = {"short": "", "of": "", **facts}
    return replace(metric, name=name, rule=rule, **given)


_accuracy = METRICS["accuracy"]
_validation = METRICS["val_accuracy"]
_best = best_round("accuracy")
_selected = best_round("val_accuracy")
_on_clients = METRICS["amp"]
_client_validation = METRICS["client_val_accuracy"]
_client_best = best_round("amp")
_client_selected = best_round("client_val_accuracy")

NUMBERS: dict[str, Number] = {
    number.name: number
    for number in (
        _of(
            _accuracy,
            "best_accuracy",
            value_at("accuracy", _best),
            short="best",
            of="best round by the test set",
        ),
        _of(
            _ROUND,
            "best_round",
            _best,
            of="of the best test accuracy, the first if several",
            whole=True,
        ),
        _of(
            _accuracy,
            "final_accuracy",
            value_at("accuracy", last_round),
            short="final",
            of="last round",
        ),
        _of(
            _accuracy,
            "selected_accuracy",
            value_at("accuracy", _selected),
            short="selected",
            of="round of the best validation accuracy",
            optional=True,
        ),
        _of(
            _ROUND,
            "selected_round",
            _selected,
            of="of the best validation accuracy, the first if several",
            optional=True,
            whole=True,
        ),
        _of(
            _validation,
            "best_val_accuracy",
            value_at("val_accuracy", _selected),
            short="validation",
            of="best round",
            optional=True,
        ),
        _of(
            _accuracy,
            "mean_last10_accuracy",
            recent_mean("accuracy"),
            short="last10",
            of="mean of the last 10 evaluations",
        ),
        _of(
            _validation,
            "mean_last10_val_accuracy",
            recent_mean("val_accuracy"),
            short="validation10",
            of="mean of the last 10 evaluations",
            optional=True,
        ),
        _of(
            _accuracy,
            "ema_accuracy",
            smoothed_accuracy,
            short="ema",
            of="smoothed with 0.6, last round",
        ),
        _of(
            METRICS["local_accuracy"],
            "local_accuracy_mean",
            value_at("local_accuracy", last_round),
            short="local",
            of="mean over clients",
            optional=True,
        ),
        METRICS["amp"],
        METRICS["fm"],
        METRICS["wlp"],
        METRICS["client_mean"],
        METRICS["client_std"],
        METRICS["client_worst10"],
        _of(
            _on_clients,
            "best_client_accuracy",
            value_at("amp", _client_best),
            short="client_best",
            of="weighted by samples, best round by these tests",
        ),
        _of(
            _on_clients,
            "selected_client_accuracy",
            value_at("amp", _client_selected),
            short="client_selected",
            of="weighted by samples, round of the best accuracy on their own validation samples",
        ),
        _of(
            _ROUND,
            "selected_client_round",
            _client_selected,
            of="of the best accuracy on the clients' own validation samples, the first if several",
            optional=True,
            whole=True,
        ),
        _of(
            _on_clients,
            "mean_last10_client_accuracy",
            recent_mean("amp"),
            short="client_last10",
            of="weighted by samples, mean of the last 10 evaluations",
        ),
        _of(
            _client_validation,
            "best_client_val_accuracy",
            value_at("client_val_accuracy", _client_selected),
            short="client_validation",
            of="best round",
        ),
        _of(
            _client_validation,
            "mean_last10_client_val_accuracy",
            recent_mean("client_val_accuracy"),
            short="client_validation10",
            of="mean of the last 10 evaluations",
        ),
        METRICS["communications"],
        METRICS["bytes_down"],
        METRICS["bytes_up"],
        METRICS["train_steps"],
        Number(
            "seconds",
            "wall-clock time of a run",
            SECONDS,
            short="time",
            better="lower",
            differs_by_seed=False,
        ),
    )
}


# Reading


def curve_of(points: Iterable[Point]) -> Curve:
    """Arrange the points (round, metric, value) of a curve.

    Values that are empty, not finite or beyond `LARGEST` are left out.
    """
    curve: GrowingCurve = {}
    add_points(curve, points)
    return curve


def add_points(curve: GrowingCurve, points: Iterable[Point]) -> None:
    """Add points to a curve, as `curve_of` arranges them."""
    for at, metric, value in points:
        if value is not None and abs(value) <= LARGEST:
            curve.setdefault(metric, {})[at] = value


def numbers_of(curve: Curve, names: Collection[str] = ()) -> dict[str, float | int | None]:
    """Read numbers off a curve; a number that the curve does not tell is None.

    All of `NUMBERS` that have a rule are read, or only those named in `names`.
    """
    with_rule = [number for number in NUMBERS.values() if number.rule]
    if names:
        with_rule = [number for number in with_rule if number.name in names]
    return {number.name: number.value(curve) for number in with_rule}


def cut(curve: Curve, rounds: int) -> Curve:
    """Return the curve as if the run had ended after so many rounds."""
    shortened = {}
    for metric, values in curve.items():
        shortened[metric] = {at: value for at, value in values.items() if at <= rounds}
    return shortened


# Names

_SHORT = {number.short: number for number in NUMBERS.values()}
_COSTS = {
    METRICS[name].short: METRICS[name]
    for name in ("communications", "bytes_down", "bytes_up", "train_steps")
}
FORMS = (
    "METRIC@last, METRIC@last10, METRIC@selected or METRIC@ROUND for a metric of the curves",
    f"rounds@PERCENT, and {', '.join(_COSTS)} @PERCENT, until that test accuracy was reached",
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]*")  # of a metric
# What a trainable's report to Tune has beside metrics, from the trial and from Tune.
OF_REPORTS = frozenset(
    {
        "done",
        "diverged",
        "ends_sweep",
        "error",
        "objective",
        "round",
        "rounds_done",
        "status",
        "statuses",
        "traceback",
        "unusable",
        "checkpoint_dir_name",
        "config",
        "date",
        "episodes_this_iter",
        "episodes_total",
        "experiment_id",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "timesteps_since_restore",
        "timesteps_this_iter",
        "timesteps_total",
        "trainable_name",
        "training_iteration",
        "trial_id",
    }
)


def number_named(text: str) -> Number:
    """Find a number by its name or short name, or make one by its form.

    A name that is neither is taken for an algorithm's own metric; `unknown_metrics` tells which of
    these no curve has.

    Raises:
        KeyError: the text has no such form, or the target is out of range.
    """
    listed = NUMBERS.get(text) or _SHORT.get(text)
    if listed:
        return listed
    name, sign, where = text.partition("@")
    if sign and (name == "rounds" or name in _COSTS):
        return _until(text, name, where)
    has_form = not sign or re.fullmatch(r"last|last10|selected|\d{1,9}", where)
    if not NAME.fullmatch(name) or not has_form:
        raise KeyError(
            f"no metric {text!r}; known: {known_names()}; read off curves: {'; '.join(FORMS)}"
        )
    if where == "last10":
        rule = recent_mean(name)
        of = f"mean of the last {RECENT} evaluations"
    elif where == "selected":
        validation = validation_of(name)
        rule = value_at(name, best_round(validation))
        of = f"round of the best {METRICS[validation].quantity}"
    elif where in ("", "last"):
        rule = value_at(name, last_round)
        of = "last round"
    else:
        rule = value_at(name, at_round(int(where)))
        of = f"round {int(where)}"
    return _of(metric_named(name), text, rule, short=text, of=of, optional=True, whole=False)


def metric_named(name: str) -> Number:
    """Return the metric of curves of this name.

    A metric that is not in `METRICS` has no unit, and neither side of it is better.
    """
    if name.startswith(CLIENT_ACCURACY):
        client = name.removeprefix(CLIENT_ACCURACY)
        quantity = f"accuracy of the global model on the own tests of client {client}"
        return _metric(name, quantity, FRACTION)
    return METRICS.get(name) or _metric(name, name.replace("_", " "), ANY, better="")


def validation_of(metric: str) -> str:
    """Return the metric that selects the rounds of another, on the same side's samples."""
    of_clients = metric in _CLIENT_METRICS or metric.startswith(CLIENT_ACCURACY)
    return "client_val_accuracy" if of_clients else "val_accuracy"


def metric_of(number: Number) -> str:
    """Return the metric that a number made by its form is read from; empty for any other number."""
    name = number.name.partition("@")[0]
    has_form = number.name not in NUMBERS and name != "rounds" and name not in _COSTS
    return name if has_form else ""


def unknown_metrics(numbers: Iterable[Number], present: Collection[str]) -> str:
    """Say which number is of a metric that is neither in `METRICS` nor `present` in a curve.

    Empty if all metrics are known.
    """
    for number in numbers:
        name = metric_of(number)
        if name and name not in METRICS and name not in present:
            own = own_metrics(present)
            choices = [*NUMBERS, *_SHORT, *METRICS, *own]
            near = difflib.get_close_matches(name, choices, cutoff=0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            metrics = ", ".join([*METRICS, *own])
            return (
                f"no metric {number.name!r}{hint}; known: {known_names()}; "
                f"metrics of these curves: {metrics}; forms: {'; '.join(FORMS)}"
            )
    return ""


def own_metrics(present: Iterable[str]) -> list[str]:
    """Select the metrics that algorithms report of their own among those of a curve."""
    return sorted(
        name for name in present if name not in METRICS and not name.startswith(CLIENT_ACCURACY)
    )


def check_own(name: str) -> None:
    """Raise ValueError unless a name can be that of an algorithm's own metric.

    It must not mean anything else here.
    """
    taken = name in METRICS or name in NUMBERS or name in _SHORT or name == _ROUND.name
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError(f"the metric {name!r} must be named by lower-case letters, digits and _")
    if taken:
        raise ValueError(f"the metric {name!r} is one of the suite's own: take another name")
    if name in OF_REPORTS:
        raise ValueError(
            f"the metric {name!r} would be lost in reports to Tune, which have a {name!r} of their "
            "own: take another name"
        )


def known_names() -> str:
    """List the short names of `NUMBERS`, each with its name if that is another."""
    names = []
    for number in NUMBERS.values():
        full_name = "" if number.short == number.name else f" ({number.name})"
        names.append(f"{number.short}{full_name}")
    return ", ".join(names)


def _until(text: str, name: str, percent: str) -> Number:
    """Make the number that a target of test accuracy took."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", percent) or not 1 <= float(percent) <= 100:
        raise KeyError(f"{text}: a target is a test accuracy in percent, from 1 to 100")
    find = reached(float(Fraction(percent) / 100))  # exact: 57.9 / 100 > 0.579 in floats
    base = _COSTS.get(name, _ROUND)
    rule = find if name == "rounds" else value_at(base.name, find)
    of = f"until {float(percent):g} % test accuracy"
    return _of(
        base, text, rule, short=text, of=of, differs_by_seed=True, optional=True, whole=False
    )
