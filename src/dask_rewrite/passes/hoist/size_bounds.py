"""What the heaviest of many objects can weigh at most, found by looking at all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from itertools import chain
from math import inf
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from dask._task_spec import GraphNode
from toolz import functoolz

from dask_rewrite.passes.hoist.sizes import ATOMS, Scales, inside

_CONTAINERS = frozenset((list, tuple, set, frozenset, dict))
_DISPATCHER = type(np.concatenate)
_NAMED = frozenset((FunctionType, type, _DISPATCHER))
#: Objects nested deeper are weighed one by one.
MAX_DEPTH = 10


def suspects(objects: dict[int, Any], scales: Scales) -> dict[int, Any]:
    """The objects without those that are certainly light: most of what tasks carry is.

    Parameters
    ----------
    objects : dict
        Objects by their identity.
    scales : Scales
        Says from how many bytes on an object is heavy.

    Examples
    --------
    >>> light, heavy = [1, 2], np.zeros(1000)
    >>> list(suspects({1: light, 2: heavy}, Scales(1000))) == [2]
    True
    """
    groups: dict[tuple[type, int], list[int]] = {}
    for at, value in objects.items():
        kind = type(value)
        # one that is long says nothing of others
        size = len(value).bit_length() if kind in _CONTAINERS else 0
        groups.setdefault((kind, size), []).append(at)
    found: dict[int, Any] = {}
    for (kind, _), group in groups.items():
        values = [objects[at] for at in group]
        if _most(kind, values, scales, 0) >= scales.min_bytes:
            found.update(zip(group, values))
    return found


def _most_together(own: float, parts: Sequence[Collection[Any]], scales: Scales, depth: int) -> float:
    """What one of these groups of objects can weigh at most, and so much of its own."""
    longest = max(map(len, parts))
    if not longest or own + 10 * longest >= scales.min_bytes:  # nothing weighs less
        return own + 10 * longest
    items = list(chain.from_iterable(parts))
    most: dict[type, float] = {}
    for kind in set(map(type, items)):
        mine = {} if kind in ATOMS else {id(item): item for item in items if type(item) is kind}
        most[kind] = _most(kind, mine.values(), scales, depth) if mine else 10
    bound = own + longest * max(most.values())
    if bound < scales.min_bytes:
        return bound
    # Not all of a group is of its heaviest kind.
    times = [Counter(map(type, group)) for group in parts]
    return own + sum(max(each[kind] for each in times) * most[kind] for kind in most)


def _most(kind: type, values: Collection[Any], scales: Scales, depth: int) -> float:
    """What one of these values, which are all of one kind, can weigh at most."""
    if kind is str or kind is bytes:
        return 10 + max(map(len, values))
    if kind is np.ndarray and not any(v.dtype.hasobject for v in values):
        return 110 + max(int(v.nbytes) for v in values)
    if kind in _NAMED and all(map(scales.is_named, values)):
        return 200 if kind is _DISPATCHER else 10
    if str(kind.__module__).startswith("numpy.random."):
        return 3010
    if kind is functoolz.Compose:
        return max(_pickled(value, scales, 0) for value in values)
    own = 10
    if kind in _CONTAINERS or issubclass(kind, GraphNode):
        parts = list(map(inside, values))
    elif kind is partial:
        parts = [(value.func, *value.args, *value.keywords.values()) for value in values]
        own = 60
    elif kind is MethodType:
        parts = [(value.__self__,) for value in values]
        own = 60
    else:
        return max(_weighed(value, scales) for value in values)
    if depth >= MAX_DEPTH:
        return inf
    return _most_together(own, parts, scales, depth + 1)


def _weighed(value: Any, scales: Scales) -> float:
    weight = scales.weigh(value)
    return inf if weight.cores else 10 + weight.light


def _pickled(value: Any, scales: Scales, depth: int) -> float:
    """What pickle can write at most of a simple function made of others."""
    kind = type(value)
    if kind in ATOMS:
        return 200
    if kind is str:
        return 10 + 4 * len(value)
    if kind in _NAMED:
        return 300 if scales.is_named(value) else inf
    if depth >= MAX_DEPTH:
        return inf
    if kind is partial:
        parts = (value.func, *value.args, *value.keywords, *value.keywords.values())
    elif kind is functoolz.Compose:
        parts = (value.first, *value.funcs)
    elif (kind is tuple or kind is list) and len(value) < 100:
        parts = tuple(value)
    else:
        return inf
    return 200 + sum([_pickled(part, scales, depth + 1) for part in parts])
