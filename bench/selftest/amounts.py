"""Reads the registry's words on traffic, such as `P in round 1, then min(t-1, M) (P + 1)`, as numbers.

words  := clause { "; " clause }
clause := sum [" without BatchNorm"] [" in round 1, then " clause | " from round N" [" if M > 1"]]
sum    := product { ("+" | "-") product }
product:= power power ...
power  := atom ["^" atom]
atom   := number | letter | "(" sum ")" | "min(" sum "," sum ")"
"""

from __future__ import annotations

import re
from collections.abc import Mapping

WITHOUT = " without BatchNorm"


def amount(words: str, letters: Mapping[str, float], round: int) -> float:
    """The number that the words stand for in a round.

    Args:
        words: of `Entry.down`, `up` or `keeps`.
        letters: P and the others; `Pn` is the model without its BatchNorm layers.
        round: from 1; the letter t.

    Raises:
        ValueError: the words are not of the grammar above, or name an unknown letter.
    """
    letters = {**letters, "t": round}
    value = 0.0
    for clause in words.split("; "):
        from_, chosen = _clause(clause, letters, round)
        value = chosen if from_ else value
    return value


def _clause(clause: str, letters: Mapping[str, float], round: int) -> tuple[bool, float]:
    """Whether the clause speaks of this round, and what it says."""
    first, then, later = clause.partition(" in round 1, then ")
    if then:
        return True, _sum_of(first if round == 1 else later, letters)
    text, since, condition = clause.partition(" from round ")
    if since:
        number, _, relation = condition.partition(" if ")
        if relation not in ("", "M > 1"):
            raise ValueError(f"cannot read the condition {relation!r}")
        return round >= int(number) and (not relation or letters["M"] > 1), _sum_of(text, letters)
    return True, _sum_of(clause, letters)


def _sum_of(text: str, letters: Mapping[str, float]) -> float:
    if text.endswith(WITHOUT):
        text, letters = text.removesuffix(WITHOUT), {**letters, "P": letters["Pn"]}
    return _Reader(text, letters).read()


class _Reader:
    """A recursive descent through the sum's tokens."""

    def __init__(self, text: str, letters: Mapping[str, float]) -> None:
        self._text, self._letters = text, letters
        self._tokens = re.findall(r"\d+|min|[A-Za-z]+|[-+^(),]|\S", text)

    def read(self) -> float:
        value = self._sum()
        if self._tokens:
            raise self._unreadable()
        return value

    def _sum(self) -> float:
        value = self._product()
        while self._next() in ("+", "-"):
            value += self._product() if self._tokens.pop(0) == "+" else -self._product()
        return value

    def _product(self) -> float:
        value = self._power()
        while self._next() not in ("", "+", "-", ")", ","):
            value *= self._power()
        return value

    def _power(self) -> float:
        base = self._atom()
        if self._next() != "^":
            return base
        self._take("^")
        power: float = base ** self._atom()
        return power

    def _atom(self) -> float:
        token = self._tokens.pop(0) if self._tokens else ""
        if token == "min":
            self._take("(")
            left = self._sum()
            self._take(",")
            right = self._sum()
            self._take(")")
            return min(left, right)
        if token == "(":
            value = self._sum()
            self._take(")")
            return value
        if token.isdigit():
            return float(token)
        if token not in self._letters:
            raise self._unreadable(token)
        return float(self._letters[token])

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self, token: str) -> None:
        if self._next() != token:
            raise self._unreadable(self._next())
        self._tokens.pop(0)

    def _unreadable(self, token: str = "") -> ValueError:
        return ValueError(f"cannot read {token or self._next()!r} in {self._text!r}")
