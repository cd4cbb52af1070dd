"""An algorithm's requirements on its setting: supplied if possible, else refused with the fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from algorithms import Entry
from bench import models
from bench.data import info
from bench.errors import UsageError
from search_spaces import Setting

AUXILIARY_PER_CLASS = 32  # FedCAD, Experiments: "using only 32 samples for each class"
VALIDATION_FRACTION = 0.1


def shared_supplies(
    entries: Iterable[Entry], setting: Setting, chosen: frozenset[str]
) -> dict[str, tuple[object, str]]:
    """Splits that some algorithm of a command needs: all of them get these, so that all train on the same data.

    Returns field -> (value, why). `chosen`: fields that the user has set, which are left alone.
    """
    supplies: dict[str, tuple[object, str]] = {}
    needing = [entry.name for entry in entries if "auxiliary" in entry.needs]
    if needing and not setting.auxiliary_per_class and "auxiliary_per_class" not in chosen:
        supplies["auxiliary_per_class"] = (AUXILIARY_PER_CLASS, f"needed by {', '.join(needing)}")
    if not setting.validation_fraction and "validation_fraction" not in chosen:
        supplies["validation_fraction"] = (VALIDATION_FRACTION, "a sweep selects on validation, never on test")
    return supplies


def supply(entry: Entry, setting: Setting) -> Setting:
    """The setting as this algorithm runs in it: its model in the form that the algorithm needs.

    Raises UsageError, with the fix, if the setting cannot give what the algorithm needs.
    """
    if "projection_head" in entry.needs and "+head" not in setting.model:
        setting = replace(setting, model=setting.model + "+head")
    if "batchnorm" in entry.needs and not models.has_batchnorm(setting.model):
        setting = replace(setting, model=setting.model + "+bn")
    try:
        setting = replace(setting, model=models.spelt(setting.model))
    except UsageError as error:
        what = " and ".join(sorted(entry.needs & {"batchnorm", "projection_head"}))
        raise UsageError(f"{entry.name} needs {what}: {error}" if what else str(error)) from None
    if models.has_batchnorm(setting.model) and setting.batch_size == 1:
        raise UsageError(f"model {setting.model!r} takes its statistics over a batch: batch_size must be > 1, got 1")
    data = info(setting.dataset).sized(setting.image_size)
    models.check_model(setting.model, data.input_shape, data.kind)
    if "auxiliary" in entry.needs and not setting.auxiliary_per_class:
        raise _refusal(entry, "server samples: set auxiliary_per_class to 1 or more (FedCAD uses 32)")
    if "validation" in entry.needs and not setting.validation_fraction:
        raise _refusal(entry, "validation samples: set validation_fraction above 0, for instance 0.1")
    if "images" in entry.needs and data.kind != "images":
        raise _refusal(entry, f"images, which {setting.dataset} does not hold: choose another data set")
    if entry.needs & {"sgd", "plain_sgd"} and (setting.optimizer != "sgd" or setting.nesterov):
        other = "Nesterov's form" if setting.optimizer == "sgd" else setting.optimizer
        raise _refusal(entry, f"SGD, not {other}: add --set optimizer=sgd nesterov=false")
    if "plain_sgd" in entry.needs and (setting.momentum or setting.clip_norm):
        raise _refusal(entry, "plain SGD: add --set momentum=0 clip_norm=0 nesterov=false")
    return setting


def _refusal(entry: Entry, what: str) -> UsageError:
    return UsageError(f"{entry.name} needs {what}")
