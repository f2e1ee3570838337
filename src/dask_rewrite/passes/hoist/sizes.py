"""What objects would cost to pickle, found out by looking at them rather than by pickling them.

Arrays know their size; functions, partial functions, bound methods, containers and plain objects are
looked into. Only what has a way of its own to be pickled is pickled, and only until it is known to be
heavy. Users' objects can do anything when they are pickled, so as little as possible is asked of them; of
many of one kind side by side only a few are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, NestedContainer, Task, TaskRef

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.pickling import attributes_of, by_reference, is_plain, pickled_up_to

#: Values that weigh next to nothing and hold nothing.
ATOMS: frozenset[type] = frozenset(
    (
        *(int, float, complex, bool, type(None), type(Ellipsis), slice, range),
        *(TaskRef, Alias, BuiltinFunctionType, ModuleType, np.ufunc),
        *np.sctypeDict.values(),
        *(type(np.dtype(kind)) for kind in np.sctypeDict.values()),
    )
)


class Weight(NamedTuple):
    """What an object costs to pickle.

    Parameters
    ----------
    light : int
        Bytes of all its small parts together.
    cores : tuple of object
        Its heavy parts.
    movable : bool
        Whether it could be the value of a key.
    """

    light: int
    cores: tuple[Any, ...] = ()
    movable: bool = True


#: What weighs nothing.
NOTHING = Weight(0)


class Scales:
    """Weighs objects, each one once.

    Parameters
    ----------
    min_bytes : int
        What weighs at least so much is heavy.
    max_parts : int
        No further objects are looked into beyond so many, or beyond a twentieth of it in one value.

    Examples
    --------
    >>> from functools import partial
    >>> scales = Scales(min_bytes=1000)
    >>> table = np.arange(1000)
    >>> weight = scales.weigh(partial(print, {"table": table}, sep=""))
    >>> weight.cores[0] is table, scales.nbytes(weight) > 8000
    (True, True)
    """

    def __init__(self, min_bytes: int, max_parts: int = 200_000) -> None:
        self.min_bytes = min_bytes
        self.left, self._most_of_one, self._least = max_parts, max_parts // 20, 0
        self.failed: dict[str, str] = {}  # types that cannot be pickled, and what they say
        self._known: dict[int, Weight] = {}
        self._alive: list[Any] = []  # a new object at an old address is not the old object
        self._cores: dict[int, int] = {}  # bytes of the heavy parts
        self._named = ByIdentity[bool]()
        self._codes = ByIdentity[tuple[int, list[Any]]]()
        self._opened: set[int] = set()  # what is being looked into
        self._sampling: list[int] = []  # containers of which samples are being weighed

    def nbytes(self, weight: Weight) -> int:
        """Light and heavy parts together."""
        return weight.light + sum(map(self.core_bytes, weight.cores))

    def core_bytes(self, core: Any) -> int:
        """Bytes of a heavy part."""
        return self._cores[id(core)]

    def weigh(self, value: Any) -> Weight:
        """The weight of an object; parts that it holds several times may count several times."""
        known, opened = self._known, self._opened
        stack: list[tuple[Any, int, list[Any] | None]] = [(value, 0, None)]
        if not self._sampling:
            self._least = max(self.left - self._most_of_one, 0)
        while stack:
            here, own, parts = stack.pop()
            at = id(here)
            if parts is not None:
                known[at] = self._sum(here, own, parts)
            elif at not in known and at not in opened:
                opened.add(at)
                self._alive.append(here)
                self.left -= 1
                own, found = _LIGHT if self.left < self._least else self._parts(here)
                if found is None:
                    known[at] = Weight(0, movable=False)
                elif found:
                    stack.append((here, own, found))
                    stack.extend((part, 0, None) for part in found)
                else:
                    known[at] = self._sum(here, own, ())
        return known.get(id(value), NOTHING)

    def _sum(self, here: Any, own: int, parts: Iterable[Any]) -> Weight:
        light, movable = own, True
        cores: dict[int, Any] = {}
        for part in parts:
            weight = self._known.get(id(part))
            if weight is not None:  # else it holds itself
                light += weight.light
                movable = movable and weight.movable
                cores.update((id(core), core) for core in weight.cores)
        if light >= self.min_bytes or len(cores) > _MANY:
            self._cores[id(here)] = light + sum(map(self._cores.__getitem__, cores))
            return Weight(0, (here,), movable)
        return Weight(light, tuple(cores.values()), movable)

    def _parts(self, value: Any) -> tuple[int, list[Any] | None]:
        """Its own bytes and its parts, without those that weigh nothing; None: must stay where it is."""
        kind = type(value)
        if kind is str or kind is bytes or kind is bytearray:
            return len(value), []
        if kind in ATOMS:
            return _LIGHT
        if kind in _CONTAINERS or isinstance(value, (GraphNode, dict)):
            return self._items(inside(value), 10, id(value))
        if kind is FunctionType:
            return _LIGHT if self.is_named(value) else self._function(value)
        if kind is MethodType:
            return self._items([value.__self__], 50)
        if kind is partial:
            return self._items([value.func, *value.args, *value.keywords.values()], 50)
        if isinstance(value, type):
            return _LIGHT if self.is_named(value) else self._items(_members(value), 500)
        return self._object(value, kind)

    def _items(self, values: Collection[Any], own: int = 0, at: int = 0) -> tuple[int, list[Any]]:
        """Bytes and parts of many values, those in containers and tasks included.

        Long containers are parts, so that each is looked into once, whoever holds it.
        """
        parts: list[Any] = []
        stack = [(values, at)]
        seen: set[int] = set()
        while stack:
            items, at = stack.pop()
            own += 10 * len(items)
            kinds = set(map(type, items))
            if kinds <= ATOMS:
                continue
            if kinds <= _TEXT:
                own += sum([len(item) for item in items if type(item) is str])
                continue
            if len(items) > _ALIKE and len(self._sampling) < _DEEP:
                light, items = self._sampled(items, at)
                own += light
            for item in items:
                kind = type(item)
                if kind in ATOMS:
                    continue
                if kind is str or kind is bytes:
                    if len(item) < self.min_bytes:
                        own += len(item)
                    else:
                        parts.append(item)
                elif kind in _CONTAINERS or isinstance(item, (dict, GraphNode)):
                    held = inside(item)
                    if len(held) > _ALIKE or id(item) in self._known:
                        parts.append(item)
                    elif id(item) not in seen and id(item) not in self._sampling and len(seen) < _LONG:
                        seen.add(id(item))
                        stack.append((held, id(item)))
                elif not (kind is FunctionType or isinstance(item, type)) or not self.is_named(item):
                    parts.append(item)
        return own, parts

    def _sampled(self, items: Collection[Any], at: int) -> tuple[int, Collection[Any]]:
        """Bytes of the kinds of which there are many, if a few of each are alike; and the other values."""
        many = [kind for kind, times in Counter(map(type, items)).items() if times > _ALIKE]
        own, rest = 0, [item for item in items if type(item) not in many]
        self._sampling.append(at)
        for kind in many:
            alike = [item for item in items if type(item) is kind]
            if kind not in _MEASURED:
                found = [self.weigh(item) for item in alike[:: max(1, len(alike) // _SAMPLE)]]
                heavy = sum([bool(weight.cores) for weight in found])
                if heavy in (0, len(found)) and all(weight.movable for weight in found):
                    own += sum(map(self.nbytes, found)) * len(alike) // len(found)
                    continue
            rest += alike
        self._sampling.pop()
        return own, rest

    def is_named(self, function: Any) -> bool:
        """Whether a function is sent as no more than a name."""
        return self._named.of(function, by_reference)

    def _function(self, function: FunctionType) -> tuple[int, list[Any]]:
        """A function that cannot be imported is sent with its code and all that this refers to."""
        own, parts = self._codes.of(function.__code__, lambda code: self._code(code, function.__globals__))
        parts = [*parts, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for cell in function.__closure__ or ():
            try:
                parts.append(cell.cell_contents)
            except ValueError:
                continue  # an empty cell
        return own, [part for part in parts if type(part) not in ATOMS and part is not function]

    def _code(self, code: CodeType, known: dict[str, Any]) -> tuple[int, list[Any]]:
        """Bytes of a function's code, and the constants and globals that it uses."""
        own = 300
        values: list[Any] = []
        codes = [code]
        names: set[str] = set()
        while codes:
            code = codes.pop()
            own += len(code.co_code) + sum(map(len, code.co_names)) + len(code.co_linetable)
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
            values += [constant for constant in code.co_consts if type(constant) in (str, bytes, tuple)]
            names.update(code.co_names)
        return self._items([*values, *[known[name] for name in sorted(names) if name in known]], own)

    def _object(self, value: Any, kind: type) -> tuple[int, list[Any] | None]:
        try:
            return self._of_kind(value, kind)
        except Exception as error:  # users' objects can do anything when they are looked at
            self.failed.setdefault(f"{kind.__module__}.{kind.__qualname__}", str(error) or repr(error))
            return _LIGHT

    def _of_kind(self, value: Any, kind: type) -> tuple[int, list[Any] | None]:
        module = (kind.__module__ or "").partition(".")[0]
        if module == "distributed" or issubclass(kind, TaskRef):
            return 0, None  # futures and the like know the client that they belong to
        if issubclass(kind, np.ndarray) and not value.dtype.hasobject:
            return 100 + int(value.nbytes), []
        if kind.__module__.startswith("numpy.random."):
            return 3000, []
        if kind.__name__ in ("Index", "Series", "DataFrame") and module == "pandas":
            used = value.memory_usage() if kind.__name__ == "Index" else value.memory_usage(index=True)
            return 500 + int(np.sum(used)), []
        if hasattr(kind, "__dask_graph__"):
            return _LIGHT
        if is_plain(kind):
            state = attributes_of(value)
            return self._items([kind, *state.values()], 50 + 10 * len(state))
        return pickled_up_to(value, max(self.min_bytes, 1)), []


_LIGHT: tuple[int, list[Any]] = (10, [])
_CONTAINERS = frozenset((list, tuple, set, frozenset))
#: An object with more heavy parts is taken as one; of its containers no more are looked into.
_MANY, _LONG = 32, 1000
_TEXT = ATOMS | {str}
#: Of more values of one kind side by side than this, only so many are looked into; and samples of samples.
_ALIKE, _SAMPLE, _DEEP = 64, 16, 8
#: Kinds that tell their size at once.
_MEASURED = ATOMS | {str, bytes, bytearray, np.ndarray}


def _members(kind: type) -> list[Any]:
    """What a class is made of, without the descriptors that it is given by Python."""
    found = [getattr(member, "__func__", member) for member in vars(kind).values()]
    return [each for each in found if type(each) is FunctionType or not hasattr(type(each), "__get__")]


def inside(value: Any) -> Collection[Any]:
    """What a container or a node holds."""
    if isinstance(value, dict):
        return value.values()
    if type(value) is Task:
        return (value.func, *value.args, *value.kwargs.values())
    if isinstance(value, NestedContainer):
        return value.args
    if isinstance(value, GraphNode):
        return (value.value,) if type(value) is DataNode else ()
    items: Collection[Any] = value
    return items
