"""The record of what is known of one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

#: A call that a function will make: the function, its arguments, its keywords.
Call: TypeAlias = tuple[Any, Sequence[Any], Mapping[str, Any]]


def through_partials(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The call that is left of one through any number of ``partial``.

    >>> through_partials(partial(partial(pow, 2), mod=5), (3,), {})[1:]
    ((2, 3), {'mod': 5})
    """
    while type(func) is partial:
        func, args, kwargs = func.func, (*func.args, *args), {**func.keywords, **kwargs}
    return func, args, kwargs


def calls_first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    """It calls its first argument, with nothing of which more is known."""
    return [(args[0], (), {})]


def calls_two(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    """The same for its first two arguments."""
    return [(args[0], (), {}), (args[1], (), {})]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a function; that it never writes into its arguments is known of all of them.

    Parameters
    ----------
    fact : callable or None
        From arguments to the `Fact` of the result, or None where that is not certain. Blocks are given
        as facts, lists as lists, all else as it is; unknown blocks are never given.
    pure : bool
        Same arguments, same result, and no other effect.
    fresh : bool or callable
        The result shares no memory with an argument. A callable is asked with the arguments and keywords as
        they stand in the task.
    inputs : int, optional
        Arguments after that many may be written into: calls that give more are not known.
    writing : tuple of str
        Keywords that make it write into its arguments: calls that give one are not known.
    calls : callable, optional
        From arguments and keywords, as they stand in the task, to the functions that it will call. It is
        known only if all of these are.
    seed : int, optional
        Place of an argument of which nothing but its type shows in the fact.
    """

    fact: Callable[..., Any] | None = None
    pure: bool = True
    fresh: bool | Callable[[Sequence[Any], Mapping[str, Any]], bool] = True
    inputs: int | None = None
    writing: tuple[str, ...] = ()
    calls: Callable[[Sequence[Any], Mapping[str, Any]], Iterable[Call]] | None = None
    seed: int | None = None
    _settled: dict[tuple[bool, bool], Known] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def settled(self, fresh: bool, pure: bool) -> Known:
        """What is known of one call; many are alike."""
        if fresh is self.fresh and pure is self.pure:
            return self
        found = self._settled.get((fresh, pure))
        if found is None:
            found = self._settled[fresh, pure] = replace(self, fresh=fresh, pure=pure)
        return found
