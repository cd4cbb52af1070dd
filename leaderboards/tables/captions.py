"""The text around a table: what it shows, how configurations were selected, what its marks mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from leaderboards.flags import FLAGS, STATES
from leaderboards.numbers import NUMBERS, Number
from leaderboards.problems import Place, Problem, Record, label_of
from leaderboards.rows.schema import WHEN_DIVERGED
from leaderboards.shell_text import typed
from leaderboards.stats.seeds import INTERVAL_FROM
from leaderboards.tables.model import Head, ResultTable, Row, TableCell

SYMBOLS = {"alpha": "α", "participation": "C", "num_clients": "K", "local_epochs": "E"}

GLOBAL_MODEL = "of the global model"  # in the quantities of `leaderboards.numbers`
_MANY = 4  # up to so many algorithms with equal numbers are named one by one
_DIVERGED_RUNS = "DIVERGED k/n: k of n runs did, and the algorithm is ranked last there"
_AT_DEFAULTS = (
    "at defaults: {} with the default hyper-parameters, at the chosen values of tuned fields, "
    "where both ran"
)
_UNREACHED = "k of n: so many seeds have the value, and no mean is given"
_FORMS = {  # of models, in labels -> remark
    "+fd": "(+fdN): the model's features are pooled to N numbers",
    "+head": "(+head): the model has a projection head",
    "+bn": "(+bn): the model has BatchNorm",
}
_LOCAL = (  # fields of local training, how each is written, and the value that is not mentioned
    ("optimizer", "{}", None),
    ("lr", "lr {}", None),
    ("momentum", "momentum {}", 0.0),
    ("weight_decay", "weight decay {}", 0.0),
    ("lr_decay", "lr decay {}", 1.0),
    ("batch_size", "batch size {}", None),
    ("augmentation", "{}", "none"),
    ("fraction", "fraction {} of the data", 1.0),
    ("step_rule", "step_rule {}", "epochs"),
    ("nesterov", "nesterov {}", False),
    ("clip_norm", "clip_norm {}", 0.0),
    ("decay_exempt", "decay_exempt {}", "none"),
    ("adam_beta1", "adam_beta1 {}", 0.9),
    ("adam_beta2", "adam_beta2 {}", 0.999),
    ("adam_eps", "adam_eps {}", 1e-8),
    ("normalization", "normalization {}", "standard"),
    ("image_size", "image_size {}", "own"),
    ("precision", "precision {}", "fp32"),
)
_TITLE = (  # texts, and the fields that each needs
    ("{dataset}", ("dataset",)),
    ("{model}", ("model",)),
    ("clients' models {client_models}", ("client_models",)),
    ("{partition}, {num_clients} clients", ("partition", "num_clients")),
    ("{num_clients} clients", ("num_clients",)),  # of several partitions
    ("{rounds} rounds × {local_epochs} local epochs", ("rounds", "local_epochs")),
    ("α = {alpha:g}", ("alpha",)),
    ("participation {participation:g}", ("participation",)),
)
IN_TITLE = frozenset(chain.from_iterable(names for _, names in _TITLE))


def title(problem: Problem) -> str:
    """Write the title of a table: what all numbers of its problem have in common."""
    shared = _shared(problem)
    parts = []
    named = set[str]()
    for text, names in _TITLE:
        if None not in map(shared.get, names) and not named.issuperset(names):
            parts.append(text.format(**shared))
            named.update(names)
    line = " · ".join(parts)
    return re.sub(r"(?<!\d)1 (client|round|local epoch)s\b", r"1 \1", line)


def _shared(problem: Problem) -> dict[str, Any]:
    """Return the fields that have one value in all cells, those laid out side by side included."""
    shared = dict(problem.setting)
    for name, values in zip(problem.by, _values_by_field(problem), strict=True):
        if len(values) == 1:
            shared[name] = next(iter(values))
    return shared


def _values_by_field(problem: Problem) -> list[set[Any]]:
    """Return the different values of each field that is laid out side by side."""
    return [set(values) for values in zip(*problem.places, strict=True)]


def labels_of(problem: Problem) -> dict[Place, str]:
    """Label each place with its values of the fields that vary between places."""
    varying = [i for i, values in enumerate(_values_by_field(problem)) if len(values) > 1]
    labels = {}
    for place in problem.places:
        texts = [_field_text(problem.by[i], place[i]) for i in varying]
        labels[place] = ", ".join(texts)
    return labels


def _field_text(name: str, value: Any) -> str:
    symbol = SYMBOLS.get(name, name)
    return f"no {symbol}" if value is None else f"{symbol} = {typed(value)}"


def captions(
    problem: Problem,
    metrics: Sequence[Number],
    common_marks: Collection[str] = (),
    intervals: bool = False,
) -> tuple[str, ...]:
    """Write the lines above a table.

    Args:
        problem: of the table; fields in which neighbouring problems differ are mentioned unless the
            title has them.
        metrics: of the columns.
        common_marks: keys of `flags.FLAGS` that hold for every cell.
        intervals: whether intervals are printed instead of standard deviations.
    """
    records = problem.records
    training = local_training(_shared(problem), problem.differing)
    spread = _metrics_line(metrics, intervals)
    lines = [of_whose_models(spread, records, marked=True), f"local training: {training}"]
    if any(record["configurations"] for record in records):
        lines += [_selection(records), tried(records)]
        lines.append(_diverged(records))
    scale = NUMBERS["best_val_accuracy"].unit.scale
    gaps = []
    for record in records:
        gap = record["validation_gap"]
        if record.get("chosen_on") and gap is not None and not record["diverged"]:
            gaps.append((label_of(record), scale * gap))
    if gaps:
        text = "validation minus test accuracy in the round of the best validation accuracy, points"
        lines.append(f"{text}: {_extremes(gaps)}")
    for key, flag in FLAGS.items():
        if key in common_marks and key != "personal":  # which the first line says
            lines.append(f"all runs: {flag.meaning}")
    return tuple(line[0].upper() + line[1:] for line in lines if line)


def tried(records: Sequence[Record]) -> str:
    """Say how many configurations of each algorithm were tried."""
    numbers = [(label_of(record), record["configurations"]) for record in records]
    return f"configurations tried: {_ranges(numbers)}"


def of_whose_models(text: str, records: Sequence[Record], marked: bool = False) -> str:
    """Say in a text on numbers `of the global model` which rows are of each client's own model.

    `marked`: whether the table marks its personal rows; otherwise their algorithms are named.
    """
    personal = [record for record in records if record["personal"]]
    if not personal:
        return text
    if len(personal) == len(records):
        return text.replace(GLOBAL_MODEL, "of each client's own model")
    labels = sorted(set(map(label_of, personal)))
    which = f"rows with {FLAGS['personal'].mark}" if marked else ", ".join(labels)
    return text.replace(GLOBAL_MODEL, f"{GLOBAL_MODEL} ({which}: of each client's own)")


def records_of(tables: Sequence[ResultTable]) -> list[Record]:
    """List the leaderboard's rows that tables show."""
    records: list[Record] = []
    for table in tables:
        for row in table.rows:
            records += [cell.record for cell in row.cells if cell.record is not None]
    return records


def local_training(setting: Mapping[str, Any], differing: Iterable[str] = ()) -> str:
    """Describe how clients train, and on how much data.

    An example is `sgd, lr 0.01, momentum 0.9, batch size 64, flip_crop`. Fields in `differing` are
    mentioned too, if the setting has them.
    """
    forms = {
        name: form for name, form, usual in _LOCAL if name in setting and setting[name] != usual
    }
    further = (set(differing) & setting.keys()) - IN_TITLE - forms.keys()
    texts = [form.format(typed(setting[name])) for name, form in forms.items()]
    texts += [f"{name} {typed(setting[name])}" for name in sorted(further)]
    return ", ".join(texts)


def notes(rows: Sequence[Row], heads: Sequence[Head]) -> tuple[str, ...]:
    """Write the lines below a table, which explain the words and marks that occur in it."""
    lines = [*_notes_on_seeds(rows, heads), *_notes_on_words(rows)]
    if any("C = " in head.label for head in heads):
        lines.append("C participation, the share of clients that train in a round")
    lines += _notes_on_rows(rows, heads)
    of_defaults = next((head for head in heads if head.at_defaults), None)
    if of_defaults is not None:
        lines.append(_AT_DEFAULTS.format(of_defaults.metric.short))
    return tuple(lines)


def _cells_of(rows: Iterable[Row]) -> list[TableCell]:
    return list(chain.from_iterable(row.cells for row in rows))


def _notes_on_seeds(rows: Sequence[Row], heads: Sequence[Head]) -> Iterator[str]:
    """Yield the remarks on numbers of seeds that hold."""
    valued = [cell for cell in _cells_of(rows) if cell.state == "value"]
    if any(cell.n == 1 for cell in valued):
        yield "(1) a single seed, no spread"
    competitors = [row for row in rows if not row.reference]
    few = []  # cells of competitors with too few seeds for a test
    for cell in _cells_of(competitors):
        tested = cell.metric.differs_by_seed and cell.metric.better
        if cell.state == "value" and tested and 0 < len(cell.seeds) < INTERVAL_FROM:
            few.append(cell)
    if any(cell.best for cell in few):
        yield "best by mean alone: a test needs 3 seeds"
    if any(cell.rank is None and cell.competes for cell in few):
        yield "rows with fewer than 3 seeds are not ranked where others have 3"
    if _has_unlike_seeds(competitors, heads):
        yield "algorithms ran on different seeds: --reference compares seed by seed"
    elif _columns_differ_in_seeds(competitors, heads):
        yield "columns are of different seeds"
    if _has_unlike_platforms(competitors, heads):
        yield f"algorithms ran {FLAGS['mixed'].meaning}: --reference marks such differences"


def _has_unlike_seeds(rows: Sequence[Row], heads: Sequence[Head]) -> bool:
    """Return whether the values of a column are of different seeds."""
    columns = []
    for column, head in enumerate(heads):
        if not head.at_defaults:
            columns.append([row.cells[column] for row in rows])
    return any(map(differ_in_seeds, columns))


def _columns_differ_in_seeds(rows: Sequence[Row], heads: Sequence[Head]) -> bool:
    """Return whether the values of a row are of different seeds."""
    chosen = [column for column, head in enumerate(heads) if not head.at_defaults]
    values_of_rows = []
    for row in rows:
        values_of_rows.append([row.cells[column] for column in chosen])
    return any(map(differ_in_seeds, values_of_rows))


def differ_in_seeds(cells: Iterable[TableCell]) -> bool:
    """Return whether the values of some cells are of different seeds."""
    with_seeds = [cell for cell in cells if cell.state == "value" and cell.seeds]
    return len({frozenset(cell.seeds) for cell in with_seeds}) > 1


def _has_unlike_platforms(rows: Sequence[Row], heads: Sequence[Head]) -> bool:
    """Return whether a seed's runs of two algorithms of a column are on unlike platforms."""
    for column, head in enumerate(heads):
        competing = [row.cells[column] for row in rows if row.cells[column].competes]
        if not head.at_defaults and any(cell.is_unlike(competing[0]) for cell in competing[1:]):
            return True
    return False


def _notes_on_words(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the meanings of the marks and of the words for states that occur."""
    cells = _cells_of(rows)
    marks = set(chain.from_iterable(cell.marks for cell in cells))
    for key, flag in FLAGS.items():
        if key in marks:
            yield f"{flag.mark} {flag.meaning}"
    states = {cell.state for cell in cells if cell.words is None}
    for state, (word, meaning) in STATES.items():
        if state in states and state != "diverged":
            colon = ":" if word.isalpha() else ""
            yield f"{word}{colon} {meaning}"
    if "diverged" in states:
        yield _DIVERGED_RUNS
        yield f"diverged: {WHEN_DIVERGED}"
    if "unreached" in states:
        yield _UNREACHED


def _notes_on_rows(rows: Sequence[Row], heads: Sequence[Head]) -> Iterator[str]:
    """Yield the remarks on what rows show, and on their order, that hold."""
    if any(row.texts for row in rows):
        yield "hyper-parameters that have their default in all configurations tried are not shown"
    for form, remark in _FORMS.items():
        if any(form in row.label for row in rows):
            yield remark
    ranked = {row.label for row in rows if row.is_ranked}
    if len(ranked) > 1 and len(heads) > 1:
        yield "complete rows first, by average place of their means over all columns"
    references = dict.fromkeys(row.label for row in rows if row.reference)
    if references:
        yield f"{', '.join(references)} (last): bounds to compare with, not ranked"


def _metrics_line(metrics: Sequence[Number], intervals: bool) -> str:
    spread = "mean [95 % interval: Student's t, from 3 seeds on]" if intervals else "mean ± std"
    spread += " (n seeds)"
    first = metrics[0]
    if len({(metric.quantity, metric.unit.shown) for metric in metrics}) > 1:
        return "; ".join([spread, *map(measured, metrics)])
    unit = f", {first.unit.shown}" if first.unit.shown else ""
    samples = [f"{metric.short}: {metric.of}" for metric in metrics if metric.of]
    return "; ".join([f"{first.quantity}{unit}, {spread}", *samples])


def measured(metric: Number) -> str:
    """Describe what a column measures.

    An example is `final: accuracy of the global model on the test set, last round, %`.
    """
    quantity = "" if metric.quantity == metric.short else metric.quantity  # of an own metric
    parts = (quantity, metric.of, metric.unit.shown)
    return f"{metric.short}: {', '.join(filter(None, parts))}"


def _selection(records: Sequence[Record]) -> str:
    rules = {record["selected_on"] for record in records if record["n"]}
    choices = {record.get("chosen_on") for record in records}
    searched = sorted(filter(None, choices))
    other_seeds = "; results are of the seeds other than 0" if searched else ""
    if all(record["configurations"] <= 1 for record in records):
        return f"one configuration of each algorithm, nothing to select from{other_seeds}"
    by = ""
    if {record.get("chosen_by") for record in records} == {"best"}:
        by = ", by the best round"
    if searched:
        samples = "clients' own validation samples" if rules == {"clients"} else "validation split"
        where = " or ".join(searched)
        return f"configurations selected on the {samples} of {where}{by}{other_seeds}"
    over_seeds = f"by their mean over seeds{by}"
    texts = {
        "validation": f"configurations selected on the validation split, {over_seeds}",
        "clients": f"configurations selected on the clients' own validation samples, {over_seeds}",
        "test": "configurations selected ON THE TEST SET: these numbers are optimistic",
        "none": "no validation split to select on: "
        "of several configurations all are listed and none is ranked",
        "mixed": "runs disagree about what to select on: "
        "of several configurations all are listed and none is ranked",
    }
    return "; ".join(text for rule, text in texts.items() if rule in rules)


def _diverged(records: Sequence[Record]) -> str:
    """Write how many of the tried configurations diverged, by algorithm; empty if none did."""
    counts: dict[str, set[int]] = {}
    for record in records:
        counts.setdefault(label_of(record), set()).add(record["configurations_diverged"])
    texts = [f"{name} {_range(group)}" for name, group in sorted(counts.items()) if any(group)]
    return f"of these, diverged (chosen only if all did): {', '.join(texts)}" if texts else ""


def _ranges(values: Iterable[tuple[str, float]]) -> str:
    """Write `fedavg 4, fedcad 3-6`, the least and largest value by algorithm.

    If many algorithms agree, write `6 of each algorithm`.
    """
    groups: dict[str, set[float]] = {}
    for name, value in values:
        groups.setdefault(name, set()).add(value)
    texts = {name: _range(group) for name, group in sorted(groups.items())}
    (usual, count), *_ = Counter(texts.values()).most_common()
    if count <= _MANY:
        return ", ".join(f"{name} {text}" for name, text in texts.items())
    others = [f"{name} {text}" for name, text in texts.items() if text != usual]
    exceptions = f", but {', '.join(others)}" if others else ""
    return f"{usual} of each algorithm{exceptions}"


def _range(values: Collection[float]) -> str:
    """Write `4`, or `3-6`, the least and largest value."""
    return "-".join(map(str, sorted({min(values), max(values)})))


def _extremes(values: Sequence[tuple[str, float]]) -> str:
    """Write `-0.12 (fedavg) to 0.84 (fedcad)`: the smallest and the largest of all values."""
    ordered = sorted((value, name) for name, value in values)
    ends = [f"{value:.2f} ({name})" for value, name in (ordered[0], ordered[-1])]
    return " to ".join(dict.fromkeys(ends))
