"""Registered algorithms that are a class with some values fixed, or a plug-in around a class."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from itertools import chain
from typing import Any

from algorithms.base import Algorithm
from search_spaces.bounds import Value


class Variant:
    """A factory of one class, or of a plug-in around a base.

    Its hyper-parameters are those of the class, or of plug-in and base.

    Args:
        *kinds: the class; for a plug-in, followed by the class of its base.
        fixed: values of hyper-parameters that the variant does not have.
        defaults: defaults that differ from those of the classes.
        **facts: facts of `About` that replace those of the first class.
    """

    def __init__(
        self,
        *kinds: type[Algorithm],
        fixed: Mapping[str, Value] | None = None,
        defaults: Mapping[str, Value] | None = None,
        **facts: Any,
    ) -> None:
        self._kinds = kinds
        self._fixed = dict(fixed or {})
        self.about = dataclasses.replace(kinds[0].about, **facts)
        self.__doc__ = kinds[0].__doc__
        self.__module__ = kinds[0].__module__
        parameters = []
        for item in chain.from_iterable(map(dataclasses.fields, reversed(kinds))):
            if item.name == "base" or item.name in self._fixed:
                continue
            parameter = inspect.Parameter(
                item.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=(defaults or {}).get(item.name, item.default),
                annotation=item.type,
            )
            parameters.append(parameter)
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *args: Value, **values: Value) -> Algorithm:
        """Build the algorithm with these values.

        Raises TypeError for an unknown name, ValueError for a forbidden value.
        """
        bound = self.__signature__.bind(*args, **values)
        bound.apply_defaults()
        hypers = {**bound.arguments, **self._fixed}
        base: dict[str, Any] = {}
        for kind in reversed(self._kinds):
            accepted = {
                item.name: hypers[item.name]
                for item in dataclasses.fields(kind)
                if item.name in hypers
            }
            base = {"base": kind(**base, **accepted)}
        algorithm: Algorithm = base["base"]
        return algorithm
