"""The figures of an optimized graph: tasks, depth, fan-in, bytes, and whether answers are the same."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import cloudpickle
import numpy as np
from dask._expr import FinalizeCompute
from dask._task_spec import convert_legacy_graph
from dask.base import collections_to_expr

from benchmarks.harness import sides

#: above this many tasks the sum of pickled tasks is estimated from an even sample
SAMPLE = 20_000


def _dumps(thing: Any) -> int:
    """Bytes of a thing as it is sent; open files need distributed's own serializers."""
    try:
        return len(cloudpickle.dumps(thing))
    except TypeError:
        from distributed.protocol import serialize

        header, frames = serialize(thing, on_error="raise")
        return len(pickle.dumps(header)) + sum(memoryview(frame).nbytes for frame in frames)


def _dependencies(graph: Mapping[Any, Any]) -> dict[Any, list[Any]]:
    nodes = convert_legacy_graph(dict(graph))
    return {key: [d for d in node.dependencies if d in nodes] for key, node in nodes.items()}


def depth_and_fan_in(graph: Mapping[Any, Any], keys: Iterable[Any]) -> tuple[int, int]:
    """The longest chain of tasks, in tasks, and the most inputs that any one task has."""
    inputs = _dependencies(graph)
    waiting = {key: len(found) for key, found in inputs.items()}
    users: dict[Any, list[Any]] = {key: [] for key in inputs}
    for key, found in inputs.items():
        for dependency in found:
            users[dependency].append(key)
    level = dict.fromkeys((key for key, count in waiting.items() if not count), 1)
    stack = list(level)
    while stack:
        key = stack.pop()
        for user in users[key]:
            level[user] = max(level.get(user, 0), level[key] + 1)
            waiting[user] -= 1
            if not waiting[user]:
                stack.append(user)
    return max(level.values(), default=0), max(map(len, inputs.values()), default=0)


def pickled_tasks(graph: Mapping[Any, Any]) -> int:
    """Bytes of the tasks, each pickled alone, as they travel to the workers."""
    tasks = list(graph.values())
    step = -(-len(tasks) // SAMPLE) or 1
    sample = tasks[::step]
    total = sum(_dumps(task) for task in sample)
    return total if step == 1 else round(total * len(tasks) / len(sample))


def submitted_bytes(side: str, collections: tuple[Any, ...]) -> int:
    """Bytes that a client submits: the optimized expression, pickled."""
    with sides.switched_on(side):
        expression = FinalizeCompute(collections_to_expr(collections)).optimize()
        return _dumps(expression)


def same(reference: Any, answer: Any) -> str:
    """Return "yes" if the answers are equal bit for bit, else "close" or "NO"."""
    mine, theirs = list(_blocks(reference)), list(_blocks(answer))
    if len(mine) != len(theirs):
        return "NO"
    if all(map(_identical, mine, theirs)):
        return "yes"
    try:
        close = all(np.allclose(a, b, rtol=1e-9, equal_nan=True) for a, b in zip(mine, theirs, strict=True))
    except (TypeError, ValueError):
        return "NO"
    return "close" if close else "NO"


def whole_arrays(keys: Any, answer: Any) -> list[Any]:
    """The arrays that the blocks make up: another library may choose other blocks."""
    grouped: dict[str, dict[tuple[int, ...], Any]] = {}
    for key, block in zip(_blocks(keys), _blocks(answer), strict=True):
        grouped.setdefault(key[0], {})[key[1:]] = block
    return [_whole(blocks) for blocks in grouped.values()]


def _whole(blocks: dict[tuple[int, ...], Any]) -> Any:
    ndim = len(next(iter(blocks)))
    if not ndim:
        return blocks[()]
    shape = [1 + max(where[axis] for where in blocks) for axis in range(ndim)]

    def nested(prefix: tuple[int, ...]) -> Any:
        if len(prefix) == ndim:
            return blocks[prefix]
        return [nested((*prefix, i)) for i in range(shape[len(prefix)])]

    return np.block(nested(()))


def _blocks(answer: Any) -> Iterable[Any]:
    stack = [answer]
    while stack:
        part = stack.pop()
        if isinstance(part, list) or (isinstance(part, tuple) and part and not isinstance(part[0], str)):
            stack.extend(reversed(part))
        else:
            yield part


def _identical(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, (np.ndarray, np.generic)):
        if one.dtype != two.dtype or one.shape != two.shape:
            return False
        if one.dtype != object:
            return bool(one.tobytes() == two.tobytes())
    try:
        return bool(pickle.dumps(one) == pickle.dumps(two) or np.all(one == two))
    except Exception:
        return False
