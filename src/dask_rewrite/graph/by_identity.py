"""A memo by identity, for what cannot be compared or is too large to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Found = TypeVar("Found")


class ByIdentity(Generic[Found]):
    """What was found of objects, told apart by their identity and kept alive, so that none takes another's.

    Safe in threads: at worst the same thing is found twice. What finds is given with each question rather
    than kept, since it is often a method of whoever owns the memo.

    Examples
    --------
    >>> lengths = ByIdentity[int]()
    >>> words = ["one", "two"]
    >>> lengths.of(words, len)
    2
    >>> words.append("three")
    >>> lengths.of(words, len), lengths.of(["one"], len)
    (2, 1)
    """

    __slots__ = ("_known",)

    def __class_getitem__(cls, kind: Any) -> type[ByIdentity[Any]]:
        """The class itself: to be made through an alias of `typing` takes longer than many a memo lives."""
        return cls

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Found]] = {}

    def of(self, value: Any, find: Callable[[Any], Found]) -> Found:
        """What is known of an object, found out the first time that it is asked for."""
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, find(value))
        return known[1]

    def clear(self) -> None:
        """Forget all, and let go of it."""
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)
