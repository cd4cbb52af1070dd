"""A board on which every flag, mark and state occurs, for tests of whole texts."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from rows import Pair, failed_row, sound_row, write

from bench import artifacts

APPROVED = Path(__file__).parent / "data" / "approved"
SHARES = (0.3, 0.6, 0.8, 1.02, 1.0)  # of the last accuracy, by round
# Algorithm -> its accuracy in the last round at alpha 0.1; at alpha 1 it is 0.1 more.
LEVELS = {
    "fedavg": 0.50,
    "fedprox": 0.53,
    "fedgkd": 0.58,
    "scaffold": 0.56,
    "moon": 0.47,
    "fedbn": 0.44,
    "fedlsd": 0.41,
    "fedlc": 0.55,
    "mine:Own": 0.60,
    "fedavg_ft": 0.52,
    "local": 0.30,
    "centralized": 0.72,
}
CELLS = ((0.1, 0.5), (0.1, 1.0), (1.0, 0.5))  # alpha, participation
OWN = {"local_test_fraction": 0.25, "local_validation_fraction": 0.1}


def curve_to(final: float, noise: float, cost: float, **more: float) -> list[Any]:
    """A curve that ends at `final`, after a better round; `more` are metrics that rise, too."""
    points = []
    for at, share in enumerate(SHARES, 1):
        accuracy = round(final * share, 4)
        values = {
            "accuracy": accuracy,
            "val_accuracy": round(accuracy - 0.01 + noise / 3 + at**2 / 900, 4),
            "loss": round(2.5 - 2 * accuracy, 4),
            "train_loss": round(2 / at + noise, 4),
            "communications": 2 * at,
            "bytes_down": round(1e6 * at * cost),
            "bytes_up": round(5e5 * at * cost),
            "train_steps": 20.0 * at,
        }
        values |= {name: round(value * share, 4) for name, value in more.items()}
        points += [(at, name, value) for name, value in values.items()]
    return points


def ran(
    algorithm: str,
    place: tuple[float | None, float],
    seed: int,
    hyperparameters: dict[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
    level: float = 0.0,
    metrics: dict[str, float] | None = None,
    **columns: Any,
) -> Pair:
    """A finished run on digits, unless `fields` say otherwise."""
    alpha, share = place
    setting = {"dataset": "digits", "model": "mlp", "num_clients": 3, "rounds": len(SHARES)}
    setting |= {"local_epochs": 1, "alpha": alpha, "participation": share, **(fields or {})}
    level += LEVELS.get(algorithm, 0.5) + (0.1 if alpha == 1.0 else 0.0)
    cost = 0.0 if algorithm == "local" else 1.0 + len(algorithm) / 10
    noise = (7 * seed + 3 * len(algorithm)) % 11 / 150
    curve = curve_to(level + noise, noise, cost, **(metrics or {}))
    told: dict[str, Any] = {
        "seconds": 10.0 + len(algorithm) + seed,
        "partition_hash": f"p{alpha}-{seed % 1000}",
    }
    row = sound_row(curve, algorithm, hyperparameters or {}, setting, seed, **(told | columns))
    return row, curve


def ended(algorithm: str, place: tuple[float, float], seed: int, **columns: Any) -> Pair:
    """A run on digits that did not finish."""
    row, _ = ran(algorithm, place, seed)
    return failed_row(algorithm, {}, json.loads(row["setting_json"]), seed, **columns), []


def on_digits() -> list[Pair]:
    """Runs of one table: every flag of `leaderboards.flags` holds for one of its rows."""
    pairs = []
    gkd: dict[str, Any] = {"gamma": 0.2, "buffer": 5}
    for place in CELLS:
        elsewhere: dict[str, Any] = {"device": "some GPU"} if place == (1.0, 0.5) else {}
        for seed in range(3):
            local = {"local_accuracy": 0.4 + seed / 50}
            pairs.append(ran("fedavg", place, seed, metrics=local))
            for mu, level in ((0.01, -0.02), (1.0, 0.0)):
                pairs.append(ran("fedprox", place, seed, {"mu": mu}, level=level))
            pairs.append(ran("fedgkd", place, seed, gkd, level=seed / 50, **elsewhere))
            broken: dict[str, Any] = {
                "diverged": seed == 1 and place == (0.1, 0.5),
                "error": "loss is nan",
            }
            pairs.append(ran("scaffold", place, seed, **broken))
            pairs += [ran(name, place, seed) for name in ("local", "centralized")]
            own = {"model": "mlp+bn"}
            pairs.append(ran("fedbn", place, seed, fields=own, personal=True))
    first, second, third = CELLS
    pairs += [ran("moon", first, seed, fields={"model": "mlp+head"}) for seed in (0, 1)]
    pairs.append(ended("moon", second, 2, status="stopped", error=None))
    pairs.append(ran("moon", second, 0, {"tau": 1.5}, {"model": "mlp+head"}))
    pairs += [ran("fedlsd", first, seed, shortened=True) for seed in (0, 1)]
    pairs.append(ended("fedlsd", first, 2))
    pairs += [ran("fedlc", third, seed, dataset_hash="ef56") for seed in (0, 1, 2)]
    pairs.append(ran("fedlc", third, 1001, fields={"partition_seed": 1}, dataset_hash="ef56"))
    pairs.append(ran("mine:Own", first, 0, {"own": "a"}, certified=False, git_dirty=True))
    pairs.append(ran("fedavg_ft", first, 0, git_commit=None, threads=2))
    pairs += [ended("fednova", first, 0), ended("fedcad", first, 0, status="stopped", error=None)]
    return pairs


def of_clients() -> list[Pair]:
    """Runs that are selected and measured on the clients' own samples."""
    pairs = []
    for name, level in (("fedavg", 0.5), ("ditto", 0.6)):
        for seed in (0, 1):
            value = level + seed / 50
            metrics = {"amp": value, "fm": 0.02, "wlp": value - 0.2, "client_mean": value - 0.01}
            metrics |= {"client_std": 0.1, "client_worst10": value - 0.25, "kl": -0.5 - seed}
            metrics |= {"client_val_accuracy": value + 0.05, "client_accuracy/1": value - 0.1}
            fields: dict[str, Any] = {
                **OWN,
                "dataset": "cifar10",
                "model": "cnn",
                "client_models": "cnn/mlp",
            }
            fields |= {"partition": "iid", "lr": 0.05}
            told: dict[str, Any] = {
                "metrics": metrics,
                "selected_on": "clients",
                "personal": name == "ditto",
                "paper": None,
            }
            pairs.append(ran(name, (None, 1.0), seed, {}, fields, **told))
    return pairs


def unselected() -> list[Pair]:
    """Two configurations without samples to select on, and one algorithm with a single one."""
    fields: dict[str, Any] = {"dataset": "mnist", "validation_fraction": 0.0}
    told: dict[str, Any] = {"fields": fields, "selected_on": "none"}
    pairs = [ran("fedprox", (0.5, 1.0), 0, {"mu": mu}, level=mu / 50, **told) for mu in (0.1, 1.0)]
    return [*pairs, ran("fedavg", (0.5, 1.0), 0, **told)]


def varied(out: Path) -> Path:
    """The board, with the classes and class counts that some of its runs keep."""
    pairs = [*on_digits(), *of_clients(), *unselected()]
    write(out, pairs)
    counts = np.array([[40, 0, 3], [5, 1200, 0], [0, 7, 60]])
    for row, _ in pairs:
        if row["algorithm"] in ("fedavg", "fedgkd") and row["alpha"] == 0.1 and row["seed"] < 2:
            accuracies = np.array([[0.1, 0.2, 0.3], [0.25, np.nan, 0.5], [0.5, 0.6, 1.0]])
            arrays = {"rounds": np.array([1, 4, 5]), "global": accuracies, "counts": counts}
            arrays |= {"clients": np.array([1, 2]), "local": accuracies[:2] + row["seed"] / 8}
            named = {f"classes/{name}": array for name, array in arrays.items()}
            artifacts.write_arrays(out, row["run_key"], named)
    return out


def searched(out: Path) -> Path:
    """Two learning rates and two weights tried on seed 0, and the best of each confirmed."""
    pairs = []
    for place in ((0.1, 0.5), (1.0, 0.5)):
        for lr, level in ((0.1, 0.0), (0.2, 0.05)):
            for mu in (0.01, 1.0):
                more: dict[str, Any] = {"fields": {"lr": lr}, "level": level + mu / 50}
                seeds = (0, 1, 2) if (lr, mu) == (0.2, 1.0) else (0,)
                pairs += [ran("fedprox", place, seed, {"mu": mu}, **more) for seed in seeds]
            more = {"fields": {"lr": lr}, "level": -level}
            seeds = (0, 1, 2) if lr == 0.1 else (0,)
            pairs += [ran("fedavg", place, seed, **more) for seed in seeds]
    pairs[0][0]["diverged"] = True
    return write(out, pairs)


def rounded(value: Any) -> Any:
    """Round the numbers in a value to what every machine computes alike."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def plain(value: Any, depth: int = 0) -> str:
    """A specification as JSON, in which a change is a line or two."""
    text = json.dumps(rounded(value), ensure_ascii=False)
    if len(text) < 100 or "{" not in text:
        return text
    space = "\n" + " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {plain(part, depth + 1)}" for name, part in value.items()]
        return "{" + space + f",{space}".join(parts) + "}"
    parts = [plain(part, depth + 1) for part in value]
    return "[" + space + f",{space}".join(parts) + "]"


def assert_approved(name: str, text: str, out: Path) -> None:
    """Compare a text with the approved one in tests/data/approved; APPROVE=1 approves it.

    `out`: the result folder, which the approved text calls OUT.
    """
    text = text.replace(str(out), "OUT")
    text = re.sub(r"\d\.\d{6,}", lambda digits: f"{float(digits[0]):.6f}", text)
    file = APPROVED / name
    if os.environ.get("APPROVE"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"APPROVE=1 approves what is now in {name}"
