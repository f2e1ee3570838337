"""What many tests need: exact comparison, structure checks, arrays that count their loads."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, TaskRef
from dask.array.optimization import optimize as stock_array
from dask.bag.core import optimize as stock_bag
from dask.core import flatten
from dask.delayed import optimize as stock_delayed
from dask.highlevelgraph import HighLevelGraph
from hypothesis import settings

import dask_rewrite

#: No task may be nested deeper than this, whatever came in (the design says "about 32").
MAX_NESTING = 40

ON = dict.fromkeys(("array_optimize", "delayed_optimize", "bag_optimize"), dask_rewrite.optimize)
STOCK = {"array_optimize": stock_array, "delayed_optimize": stock_delayed, "bag_optimize": stock_bag}


def allocated(action: Callable[[], Any]) -> int:
    """Bytes that are allocated at most: the least of three runs, as threads that read files let go late."""
    action()  # imports
    found = []
    for _ in range(3):
        gc.collect()
        tracemalloc.start()
        try:
            action()
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(found)


def examples(count: int) -> settings:
    """Random examples: so many of each 150 that the profile asks for."""
    return settings(max_examples=max(1, count * settings().max_examples // 150))


def switched_on(**config: Any) -> Any:
    """A context in which our optimizer stands under every collection's name."""
    return dask.config.set({**ON, **config})


def stock(**config: Any) -> Any:
    """A context in which dask's own optimizers do the work."""
    return dask.config.set({**STOCK, **config})


# --------------------------------------------------------------------------------------
# exact comparison


def assert_same(actual: Any, expected: Any) -> None:
    """Same type, dtype, shape and bits: nan payloads, signed zeros and masks included."""
    assert type(actual) is type(expected), f"{type(actual)} is not {type(expected)}"
    if isinstance(expected, np.ma.MaskedArray):
        assert actual.dtype == expected.dtype
        assert_same(np.ma.getmaskarray(actual), np.ma.getmaskarray(expected))
        assert_same(np.asarray(actual.filled(0)), np.asarray(expected.filled(0)))
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        _assert_same_values(np.asarray(actual), np.asarray(expected))
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, float):
        assert np.float64(actual).tobytes() == np.float64(expected).tobytes()
    elif type(expected).__module__.startswith("xarray"):
        import xarray as xr

        xr.testing.assert_identical(actual, expected)
        if isinstance(expected, xr.DataArray):  # signed zeros too
            assert_same(actual.values, expected.values)
    elif type(expected).__module__.startswith("pandas"):
        assert actual.equals(expected)
    elif hasattr(expected, "todense"):
        assert actual.dtype == expected.dtype
        assert_same(actual.fill_value, expected.fill_value)
        assert_same(actual.todense(), expected.todense())
    else:
        assert actual == expected


def _assert_same_values(actual: np.ndarray, expected: np.ndarray) -> None:
    if expected.dtype.names is not None:
        for name in expected.dtype.names:
            _assert_same_values(actual[name], expected[name])
    elif expected.dtype.hasobject:
        for one, other in zip(actual.ravel(), expected.ravel(), strict=True):
            assert_same(one, other)
    elif expected.dtype.char in "gG":  # these have bytes that mean nothing
        np.testing.assert_array_equal(actual, expected, strict=True)
        assert (np.signbit(actual.real) == np.signbit(expected.real)).all()
    elif actual.tobytes() != expected.tobytes():
        np.testing.assert_array_equal(actual, expected)
        raise AssertionError("the values are equal, but their bits are not")


def assert_same_as_stock(*collections: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Compute with dask's own optimizer and with ours, and compare every bit."""
    kwargs.setdefault("scheduler", "sync")
    with stock():
        expected = dask.compute(*collections, **kwargs)
    with switched_on():
        actual = dask.compute(*collections, **kwargs)
    assert_same(actual, expected)
    return actual


# --------------------------------------------------------------------------------------
# looking at graphs


def fresh(graph: HighLevelGraph) -> HighLevelGraph:
    """The same graph, with no materialized layer cached in it."""
    layers = {}
    for name, layer in graph.layers.items():
        clone = layer.__class__.__new__(layer.__class__)
        clone.__dict__.update(layer.__dict__)
        clone.__dict__.pop("_cached_dict", None)
        layers[name] = clone
    return HighLevelGraph(layers, dict(graph.dependencies))


def keys_of(*collections: Any) -> list[Any]:
    return [key for c in collections for key in flatten(c.__dask_keys__())]


def rewritten(*collections: Any) -> HighLevelGraph:
    """The graph after our optimizer, of one or of several collections."""
    results = dask_rewrite.optimize(*collections)
    if len(collections) == 1:
        results = (results,)
    graphs = [c.__dask_graph__() for c in results]
    return HighLevelGraph.merge(*graphs)


def tasks_of(*collections: Any) -> dict[Any, Any]:
    """The tasks after our optimizer, as a plain dict."""
    return dict(rewritten(*collections))


def stock_tasks_of(collection: Any) -> dict[Any, Any]:
    return dict(stock_array(fresh(collection.__dask_graph__()), keys_of(collection)))


def loads(tasks: Mapping[Any, Any], function: Any) -> int:
    """How often ``function`` stands in the tasks, at any depth, templates counted at each use."""
    return sum(1 for task in tasks.values() for f in functions_in(task) if f is function)


def _children(node: Any) -> list[Any]:
    if isinstance(node, (Alias, TaskRef)):
        return []
    if isinstance(node, DataNode):
        return []
    if isinstance(node, GraphNode):
        children = [*getattr(node, "args", ()), *(getattr(node, "kwargs", None) or {}).values()]
        owner = getattr(getattr(node, "func", None), "__self__", None)
        if isinstance(owner, GraphNode):
            children.append(owner)
        return children
    if isinstance(node, (list, tuple, set, frozenset)):
        return list(node)
    if isinstance(node, dict):
        return list(node.values())
    owner = getattr(node, "__self__", None)
    return [owner] if isinstance(owner, GraphNode) else []


def walk_nested(node: Any) -> Iterator[tuple[int, Any]]:
    """Every nested part of a task with its depth. No recursion, each shared part once per use."""
    stack = [(1, node)]
    while stack:
        depth, current = stack.pop()
        yield depth, current
        step = 1 if isinstance(current, (GraphNode, tuple, list, dict)) else 0
        stack.extend((depth + step, child) for child in _children(current))


def nesting(node: Any) -> int:
    """The depth of the nested GraphNodes of one task, by the longest way down."""
    deepest: dict[int, int] = {}
    result = 0
    stack = [(1, node)]
    while stack:
        depth, current = stack.pop()
        is_node = isinstance(current, GraphNode)
        # A shared part is walked again only when it is reached at a greater depth.
        if isinstance(current, (GraphNode, list, tuple, dict)):
            if deepest.get(id(current), 0) >= depth:
                continue
            deepest[id(current)] = depth
        if is_node:
            result = max(result, depth)
        stack.extend((depth + is_node, child) for child in _children(current))
    return result


def functions_in(node: Any) -> Iterator[Any]:
    """Every function in a task, at any depth."""
    for _, part in walk_nested(node):
        function = getattr(part, "func", None)
        if isinstance(part, GraphNode) and function is not None:
            yield function


def fan_in(node: Any) -> int:
    return len(node.dependencies)


def assert_sound(tasks: Mapping[Any, Any], outputs: Iterable[Any], external: Iterable[Any] = ()) -> None:
    """Outputs present, keys true, nothing dangling, nothing unreachable, no cycle, nesting bounded."""
    outputs = list(outputs)
    allowed = set(external)
    for key in outputs:
        assert key in tasks, f"output {key!r} is missing"
    dependencies = {}
    for key, node in tasks.items():
        assert isinstance(node, GraphNode), f"{key!r} is a {type(node)}"
        assert node.key == key, f"{node.key!r} stands under {key!r}"
        dependencies[key] = {d for d in node.dependencies if d not in allowed}
        dangling = dependencies[key] - tasks.keys()
        assert not dangling, f"{key!r} needs {dangling}"
        assert nesting(node) <= MAX_NESTING, f"{key!r} is nested {nesting(node)} deep"
    reachable = set()
    stack = list(outputs)
    while stack:
        key = stack.pop()
        if key not in reachable:
            reachable.add(key)
            stack.extend(dependencies[key])
    assert reachable == set(tasks), f"{len(set(tasks) - reachable)} tasks that no output needs"
    waiting = {key: len(found) for key, found in dependencies.items()}
    users: dict[Any, list[Any]] = {}
    for key, found in dependencies.items():
        for dependency in found:
            users.setdefault(dependency, []).append(key)
    ready = [key for key, count in waiting.items() if not count]
    done = 0
    while ready:
        done += 1
        for user in users.get(ready.pop(), ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    assert done == len(tasks), "the graph has a cycle"


def checked(*collections: Any) -> dict[Any, Any]:
    """Optimize, check the structure, and return the tasks."""
    tasks = tasks_of(*collections)
    assert_sound(tasks, keys_of(*collections))
    return tasks


# --------------------------------------------------------------------------------------
# sources of data


class Source:
    """Array-like that counts what is read from it."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self.lock = threading.Lock()
        self.loads = 0
        self.elements = 0

    def __getitem__(self, index: Any) -> np.ndarray:
        result = np.array(self.values[index])
        with self.lock:
            self.loads += 1
            self.elements += result.size
        return result

    def reset(self) -> None:
        self.loads = self.elements = 0

    def __reduce__(self) -> Any:
        return Source, (self.values,)


def counted(shape: tuple[int, ...], chunks: Any, dtype: Any = "f8") -> tuple[Source, da.Array]:
    """A lazily read array of distinct values, and the source that counts its loads."""
    source = Source(np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape))
    return source, da.from_array(source, chunks=chunks)


def distinct(shape: tuple[int, ...], chunks: Any, dtype: Any = "f8") -> da.Array:
    """A dask array whose values all differ, so that no block can be taken for another."""
    return da.from_array(np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape), chunks=chunks)


# --------------------------------------------------------------------------------------
# programs that users write, at any size


class Loop:
    """Grows an array program step by step without copying the graph at every step, as dask does.

    A step works on arrays that know one layer only; the whole graph is put together at the end.
    """

    def __init__(self, *arrays: da.Array) -> None:
        self.layers: dict[str, Any] = {}
        self.dependencies: dict[str, set[str]] = {}
        for array in arrays:
            self._absorb(array)

    def _absorb(self, array: da.Array) -> None:
        for name, layer in array.dask.layers.items():
            if name not in self.layers:
                self.layers[name] = layer
                self.dependencies[name] = set(array.dask.dependencies[name])

    def short(self, array: da.Array) -> da.Array:
        """The array, with a graph of its own layer alone."""
        self._absorb(array)
        return self._array(array, HighLevelGraph({array.name: self.layers[array.name]}, {array.name: set()}))

    def whole(self, array: da.Array) -> da.Array:
        self._absorb(array)
        return self._array(array, HighLevelGraph(dict(self.layers), dict(self.dependencies)))

    def _array(self, array: da.Array, graph: HighLevelGraph) -> da.Array:
        return da.Array(graph, array.name, array.chunks, meta=array._meta)


@lru_cache(maxsize=8)  # dask takes seconds to build five thousand steps
def leapfrog(steps: int, chunks: int = 2) -> da.Array:
    """``a, b = b, (a + b) * 0.5``: the recurrence that kills dask at 220 steps."""
    a = da.from_array(np.arange(4.0), chunks=chunks)
    b = da.from_array(np.arange(4.0) + 1, chunks=chunks)
    loop = Loop(a, b)
    for _ in range(steps):
        a, b = b, loop.short((a + b) * 0.5)
    return loop.whole(b)


def leapfrog_by_hand(steps: int) -> np.ndarray:
    a, b = np.arange(4.0), np.arange(4.0) + 1
    for _ in range(steps):
        a, b = b, (a + b) * 0.5
    return b


def running_total(steps: int) -> da.Array:
    total = x = da.from_array(np.arange(4), chunks=2)
    loop = Loop(x)
    for _ in range(steps):
        total = loop.short(total + x)
    return loop.whole(total)


def there_and_back(steps: int) -> da.Array:
    """Array → delayed → array, again and again."""
    x = da.from_array(np.arange(4.0), chunks=4)
    step = dask.delayed(add_one, pure=True)
    for _ in range(steps):
        x = da.from_delayed(step(x), shape=x.shape, dtype=x.dtype)
    return x


def add_one(x: Any) -> Any:
    return x + 1


def rewrite_graph(dsk: Any, keys: list[Any], check: bool = True) -> dict[Any, Any]:
    """Rewrite a bare graph and return its tasks, checked."""
    from dask_rewrite.pipeline.run import rewrite_tasks

    graph = rewrite_tasks(dsk, keys)
    assert graph is not None, "the graph was left as it was"
    tasks = dict(graph.nodes)
    if check:
        assert_sound(tasks, flatten(keys))
    return tasks


def work_of(action: Callable[[], Any]) -> int:
    """How many lines of Python an action runs: a cost that does not depend on the machine."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def assert_linear(build: Callable[[int], Any], sizes: tuple[int, ...], factor: float = 2.3) -> None:
    """Rewriting what ``build`` makes of twice the size costs at most ``factor`` times as much."""
    from dask_rewrite.hook.optimizer import rewrite

    costs = []
    for size in sizes:
        x = build(size)
        graph, keys = fresh(x.__dask_graph__()), keys_of(x)
        costs.append(work_of(lambda graph=graph, keys=keys: rewrite(graph, keys)))
    for smaller, larger in itertools.pairwise(costs):
        assert larger <= factor * smaller, f"{costs} lines of Python for {sizes}"


@contextmanager
def little_stack(frames: int = 250) -> Iterator[None]:
    """Few frames of Python's stack: whoever recurses over a graph raises RecursionError."""
    depth = 0
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@contextmanager
def unchanged_config() -> Iterator[None]:
    """Put dask's configuration back, whatever happens inside."""
    import copy

    saved = copy.deepcopy(dask.config.config)
    defaults = list(dask.config.defaults)
    try:
        yield
    finally:
        dask.config.config.clear()
        dask.config.config.update(saved)
        dask.config.defaults[:] = defaults
