"""The tables of a record, and the notes below them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Column, Table

TUNE = "tune"
TIMES = {"seconds": "", "seconds_estimate": "est.", "seconds_tried": "tried"}  # of settings
BUSY = 0.5  # load average from which on others disturb
WORDS = {  # of a figure's path, where it is not words already
    "engine": "",
    "engine_rate": "engine",
    "bare_rate": "bare loop",
    "none": "no augmentation",
    "flip_crop": "flip and crop",
    "rates": "",
    "cpu_ratio": "ratio by processor time",
    "bare_ratio": "ratio of bare loops",
    "cpu_seconds": "processor time",
    "seconds": "time",
    "dry_run": "dry run",
    "paper_dry_run": "dry run of a table",
    "beyond_interpreter": "beyond the interpreter",
    "bf16_over_fp32": "bf16 over fp32",
    "two_trials_over_one": "two trials over one",
    "first_trial": "first trial",
}
GIGA = 1e9  # from here on figures are shown in billions


def tables(record: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """Every table of a record; some may be empty.

    Args:
        record: of `new_record`, its parts measured.
        figures: those that stand in no other table, by path.
    """
    parts = record["parts"]
    yield _figures(figures)
    for entries in parts.get("data", {}).get("partitions", {}).values():
        yield _partitions(entries)
    for model, entries in parts.get("training", {}).get("algorithms", {}).items():
        yield _algorithms(model, entries)
    if "throughput" in parts:
        yield _rates(parts["throughput"]["rates"])
        yield _split(parts["throughput"]["split"], parts.get(TUNE))
    yield _settings(parts.get("settings", {}).get("runs", ()))
    if "scale" in parts:
        yield _scale(parts["scale"])
    for model, found in parts.get("profile", {}).items():
        yield _profile(model, found)
    yield _peers(record.get("peers", ()))


def notes(record: Mapping[str, Any]) -> list[str]:
    """What the tables need to be understood."""
    parts, lines = record["parts"], _busy(record)
    if "throughput" in parts:
        lines.append("of bytes/s: an estimate; every operator of an uncompiled step reads and writes memory")
        lines += _energy_notes(parts["throughput"]["rates"])
        lines += _split_notes(parts["throughput"]["split"], TUNE in parts)
    kinds = {name for entry in parts.get("settings", {}).get("runs", ()) for name in entry}
    if "seconds_estimate" in kinds:
        lines.append("est.: an estimate from fewer rounds than the setting's; no target is met by one")
    if "seconds_tried" in kinds:
        lines.append("tried: with fewer samples than the setting's, which says nothing about its time")
    return lines + (_scale_notes(parts["scale"]) if "scale" in parts else [])


def _busy(record: Mapping[str, Any]) -> list[str]:
    """What else ran on the machine when it began, if that was much."""
    load = (record["load"] or [0.0])[0]
    if load < BUSY:
        return []
    text = f"the load was {load:.1f} on {record['cores']} cores when this began: by the clock all is slower than it is"
    return [f"{text}; ratios of processor time stand"]


def _figures(found: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("figure", *_right("median", "quartiles", "target", "met"))
    for name, figure in found.items():
        table.add_row(_in_words(name), *_cells(figure))
    return table


def _in_words(path: str) -> str:
    """`training engine resnet8 none cpu_ratio` as `training: resnet8, no augmentation, ratio by processor time`."""
    part, *names = path.split(" ")
    words = [WORDS.get(name, name) for name in names]
    return f"{part}: {', '.join(word for word in words if word)}"


def _rates(entries: Sequence[Mapping[str, Any]]) -> Table:
    """Samples a second, beside what the machine allows."""
    titles = ("pack", "samples/s", "quartiles", "of FLOP/s", "of bytes/s", "of what binds", "met", "memory")
    metered = any("per_sample" in entry.get("energy", ()) for entry in entries)
    table = Table("model", "data set", "backend", "precision", *_right(*titles, *["J a sample"] * metered))
    for entry in entries:
        size = "" if entry["image_size"] == "own" else f" {entry['image_size']}"
        named = (entry["model"], entry["dataset"] + size, entry["backend"], entry["precision"], str(entry["pack"]))
        if "rate" not in entry:
            table.add_row(*named, _absent(entry))
            continue
        rate, spread, *_ = _cells(entry["rate"])
        binding, met = entry["bound_share"], _cells(entry["bound_share"])[3]
        energy = entry["energy"].get("per_sample")
        table.add_row(
            *named,
            rate.removesuffix(" samples/s"),
            spread,
            f"{entry['arithmetic_share']:.0%}",
            f"{entry['bandwidth_share_estimate']:.0%}",
            f"{binding['median']:.0%} {entry['binds']}",
            met,
            _cells(entry["memory"])[0],
            *[_number(energy["median"]) if energy else "–"] * metered,
        )
    return table


def _split(models: Mapping[str, Mapping[str, Any]], tune: Mapping[str, Any] | None) -> Table:
    """Where the time of a round goes."""
    table = Table("model", "phase of a round", *_right("time", "quartiles", "share"))
    for model, found in models.items():
        for name, figure in found["phases"].items():
            table.add_row(model, name, *_cells(figure)[:2], f"{found['share'][name]:.1%}")
        if tune:
            step = tune["overhead"]["step"]
            table.add_row(model, "Ray Tune, a report", *_cells(step)[:2], f"{_tune_share(step, found):.1%}")
    return table


def _tune_share(step: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """Of a round that is reported by itself; a trial reports about once a second."""
    seconds = step["median"] / 1e3
    return float(seconds / (found["round"]["median"] + seconds))


def _settings(entries: Sequence[Mapping[str, Any]]) -> Table:
    titles = ("seeds", "pack", "rounds", "samples/s", "time", "target", "met", "energy")
    table = Table("setting", "algorithm", "backend", "precision", *_right(*titles))
    for entry in entries:
        named = (entry["setting"], entry["algorithm"], entry.get("backend", "–"), entry["precision"])
        if "rate" not in entry:
            table.add_row(*named, "", str(entry["pack"]), _absent(entry))
            continue
        kind = next(name for name in TIMES if name in entry)
        time, _, target, met = _cells(entry[kind])
        joules = entry["energy"].get("joules")
        table.add_row(
            *named,
            str(entry["seeds"]),
            str(entry["pack"]),
            f"{entry['rounds']} of {entry['of']}",
            _number(entry["rate"]["median"]),
            f"{TIMES[kind]} {time}".strip(),
            target,
            met,
            _cells(joules)[0] if joules else "–",
        )
    return table


def _scale(part: Mapping[str, Any]) -> Table:
    """The printed tables on paper."""
    hours = [f"hours on {gpus}" for gpus in part["gpus"]]
    table = Table("table", *_right("runs", "of known rate", *hours, "useful devices", "least hours"))
    for name, found in part["tables"].items():
        known = found["runs"] - sum(found["unknown"].values())
        figures = ["unknown"] * (2 + len(hours))
        if found["hours"]:
            figures = [*map(_hours, found["hours"].values()), str(found["useful_gpus"]), _hours(found["least_hours"])]
        table.add_row(name, str(found["runs"]), str(known), *figures)
    return table


def _hours(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _profile(model: str, found: Mapping[str, Any]) -> Table:
    table = Table(f"{model}: operator", *_right("calls", f"own {found['clock']} time, ms", "share"))
    for entry in found["operators"]:
        table.add_row(entry["name"], f"{entry['calls']:,}", _number(1e3 * entry["seconds"]), f"{entry['share']:.1%}")
    return table


def _energy_notes(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    reasons = dict.fromkeys(entry["energy"].get("left_out") for entry in entries if "energy" in entry)
    return [f"energy: {reason}" for reason in reasons if reason]


def _split_notes(models: Mapping[str, Mapping[str, Any]], tuned: bool) -> list[str]:
    lines = []
    for model, found in models.items():
        hidden = ", ".join(found["not_separated"])
        within = f"; {hidden} cannot be told from step, which runs as one program" if hidden else ""
        work = f"{found['samples']:,} samples trained and {found['tests']:,} evaluated"
        lines.append(f"{model}: a round of {work} took {found['measuring']:.2f} x its time with the timers{within}")
    return lines if tuned or not models else [*lines, "Ray Tune's share: not measured here, the part tune does"]


def _scale_notes(part: Mapping[str, Any]) -> list[str]:
    """What is not in the estimate, or taken for granted in it."""
    whole, measured = part["tables"]["all"], part["measured_on"]
    lines = [
        f"scale: devices such as {measured['device']}, {measured['precision']}; runs in several tables once in all"
    ]
    if whole["unknown"]:
        problems = ", ".join(f"{name} ({runs} runs)" for name, runs in whole["unknown"].items())
        lines.append(f"scale: rate unknown, so not counted: {problems}")
    if whole["assumed_as_fedavg"]:
        lines.append(f"scale: no ratio measured, taken as fast as FedAvg: {', '.join(whole['assumed_as_fedavg'])}")
    return lines


def _peers(entries: Sequence[Mapping[str, Any]]) -> Table:
    titles = ("samples/s", "ours / theirs", "target", "met", "same device and threads")
    table = Table("peer", "model", "our backend", "precision", "pack", *_right(*titles))
    for entry in entries:
        alike = "yes" if entry["alike"] else "no"
        how = [str(entry[name] or "–") for name in ("backend", "precision", "pack")]
        ratio, target, met = "not measured", "", ""
        if entry["ratio"]:
            ratio, _, target, met = _cells(entry["ratio"])
        table.add_row(
            str(entry["peer"]), entry["model"], *how, _number(entry["samples_per_s"]), ratio, target, met, alike
        )
    return table


def _algorithms(model: str, entries: Mapping[str, Mapping[str, Any]]) -> Table:
    titles = ("time of a round / FedAvg's", "quartiles", "arithmetic", "floor", "over floor", "met")
    table = Table(f"{model}: algorithm", *_right(*titles))
    for name, entry in entries.items():
        if "ratio" in entry:
            median, spread, *_ = _cells(entry["ratio"])
            over, _, _, met = _cells(entry["over_floor"])
            table.add_row(name, median, spread, f"{entry['arithmetic']:.2f} x", f"{entry['floor']:.2f} x", over, met)
        else:
            table.add_row(name, _absent(entry))
    return table


def _partitions(entries: Mapping[str, Mapping[str, Any]]) -> Table:
    """The partitions of one number of samples."""
    samples = next(iter(entries.values()))["samples"]
    titles = ("clients", "alpha", "time", "quartiles", "processor time", "target", "met")
    table = Table(f"partition of {samples:,} samples", *_right(*titles))
    for name, entry in entries.items():
        asked = (f"{entry['num_clients']:,}", "–" if entry["alpha"] is None else f"{entry['alpha']:g}")
        if "seconds" in entry:
            median, spread, target, met = _cells(entry["seconds"])
            table.add_row(name, *asked, median, spread, _cells(entry["cpu_seconds"])[0], target, met)
        else:
            table.add_row(name, *asked, "left out")
    return table


def _absent(entry: Mapping[str, Any]) -> str:
    """In place of figures that an entry has not."""
    return "left out" if "left_out" in entry else "failed"


def _right(*titles: str) -> list[Any]:
    return [Column(title, justify="right") for title in titles]


def _cells(found: Mapping[str, Any]) -> Sequence[str]:
    scale, unit = (1e9, "G" + found["unit"]) if found["median"] >= GIGA else (1.0, found["unit"])
    median, low, high = (_number(found[name] / scale) for name in ("median", "low", "high"))
    spread = f"{low} to {high}" if found["n"] > 1 else ""
    target = f"{found['bound']} {found['limit']:g}" if "limit" in found else ""
    met = ("yes" if found["met"] else "no") if "met" in found else ""
    return f"{median} {unit}", spread, target, met


def _number(value: float) -> str:
    """Three digits, or the whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
