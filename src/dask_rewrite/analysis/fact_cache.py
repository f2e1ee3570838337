"""What calls give, kept for as long as the process lives: graphs are made of the same few."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial
from itertools import count
from types import FunctionType, MethodType, NoneType
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import GraphNode, List, Task, TaskRef, _identity_cast
from dask.utils import ndeepmap
from toolz import functoolz, last, pipe

from dask_rewrite.analysis.knowledge import known
from dask_rewrite.analysis.knowledge.blocks import SCALARS
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.loading import Source
from dask_rewrite.analysis.knowledge.lookup import KNOWN
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.templates import calls_frame

#: Results that are kept; all are dropped when there are more.
MOST = 20_000
#: Larger arrays in arguments are not compared.
_FEW_BYTES = 256
#: What calls gave.
RESULTS: dict[Any, Any] = {}
#: Equal facts are one object with a number that no other fact ever has.
_interned: dict[Fact, Fact] = {}
_arrays: dict[Any, Fact] = {}
_functions: dict[Any, int] = {}
#: Signatures of dicts of facts, which steps of means pass on.
_dicts: dict[int, tuple[dict[Any, Any], Any]] = {}
_TABLES: tuple[dict[Any, Any], ...] = (RESULTS, _interned, _arrays, _functions, _dicts)
_numbers = count(1)

#: Values that are equal only if they are the same, among values of one type.
_BY_VALUE = frozenset([int, bool, str, bytes, NoneType, type(Ellipsis), type])
_ENDS = frozenset([int, NoneType])
#: Stands for a call that was not seen.
NOTHING = object()


def tidy() -> None:
    """Forget everything if it has become much."""
    if max(map(len, _TABLES)) > MOST:
        for table in _TABLES:
            table.clear()


def intern(found: Any) -> Any:
    """The same value, with its facts replaced by the ones that stand for all that are equal."""
    kind = type(found)
    if kind is Fact:
        known = _interned.get(found)
        if known is None:
            found.be_numbered(next(_numbers))
            known = _interned.setdefault(found, found)
        return known
    if kind is tuple or kind is list:
        return kind(map(intern, found))
    return {name: intern(value) for name, value in found.items()} if kind is dict else found


def fact_of_array(array: np.ndarray[Any, Any]) -> Fact:
    """The fact of an array at hand.

    Examples
    --------
    >>> fact_of_array(np.zeros((2, 3))) is fact_of_array(np.ones((2, 3)))
    True
    """
    form = array.shape, array.dtype
    fact = _arrays.get(form)
    if fact is None:
        fact = _arrays[form] = intern(Fact.of_array(array))
    return fact


def signature(value: Any) -> Any:
    """Something hashable that is equal for equal values only: 1 is not True, and 0.0 is not -0.0.

    Examples
    --------
    >>> signature((1, 2.5)) == signature((1, 2.5)), signature(0.0) == signature(-0.0)
    (True, False)

    Raises
    ------
    TypeError
        For what is not compared.
    """
    kind = type(value)
    if kind is Fact:
        return value.number or intern(value).number
    if kind is tuple or kind is list:
        found: list[Any] = [kind]
        for item in value:
            inner = type(item)
            if inner is Fact and item.number:
                found.append(item.number)
                continue
            if inner is slice:  # most tuples are indices
                start, stop, step = item.start, item.stop, item.step
                if type(start) in _ENDS and type(stop) in _ENDS and type(step) in _ENDS:
                    found.append((slice, start, stop, step))
                    continue
            found.append(signature(item))
        return tuple(found)
    if kind in _BY_VALUE:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is slice:
        return kind, signature(value.start), signature(value.stop), signature(value.step)
    return _of_dict(value) if kind is dict else _rare(kind, value)


def _of_dict(value: dict[Any, Any]) -> Any:
    """Kept for dicts of facts: nobody else has them, and so nobody changes them."""
    known = _dicts.get(id(value))
    if known is None:
        known = value, (dict, *map(signature, value.items()))
        if Fact in map(type, value.values()):
            _dicts[id(value)] = known
    return known[1]


def _rare(kind: Any, value: Any) -> Any:
    if isinstance(value, np.dtype):
        return kind, value
    if kind in SCALARS:
        return kind, value.dtype, value.tobytes()
    if kind is np.ndarray and value.nbytes <= _FEW_BYTES and not value.dtype.hasobject:
        return kind, value.shape, value.dtype, value.tobytes()
    if kind is Source:
        return kind, *value
    if kind is np.random.SeedSequence:  # two seeds draw other numbers, but of the same kind
        return (kind,)
    if callable(value) and value in KNOWN:
        return "function", value
    raise TypeError(f"{kind} is not compared")


def name_here(value: Any) -> Any:
    """A signature in which what is not compared is named by identity, to be used while that lives."""
    try:
        return signature(value)
    except TypeError:
        kind = type(value)
        if kind is dict:
            value = value.items()
        return (kind, *map(name_here, value)) if kind in (tuple, list, dict) else ("at", id(value))


def number_of(func: Callable[..., Any]) -> int:
    """A number for a function, the same for every object that stands for the same call.

    Examples
    --------
    >>> number_of(partial(np.zeros, (2, 3))) == number_of(partial(np.zeros, (2, 3)))
    True
    """
    named = _function(func)
    number = _functions.get(named)
    return _functions.setdefault(named, next(_numbers)) if number is None else number


def _function(func: Any) -> Any:
    kind = type(func)
    if kind is partial:
        named = [(name, signature(value)) for name, value in func.keywords.items()]
        return (kind, _function(func.func), *map(signature, func.args), *named)
    if kind is functoolz.Compose:
        return (kind, *map(_function, (func.first, *func.funcs)))
    return func


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


#: Stands for a value of which nothing is known.
UNKNOWN = _Unknown()


class Function(NamedTuple):
    """A function that tasks call."""

    is_known: bool  # it is worth looking below its tasks
    number: int | None  # None if it is not compared with others
    is_special: bool  # its tasks may be more than calls
    seed: int | None  # place of an argument that is compared by its type only


class Keywords(NamedTuple):
    """The keywords of a task."""

    has_blocks: bool
    signature: Any  # None if they are not compared with others


def function_of(func: Any) -> Function:
    """Look at a function."""
    inner = func
    while type(inner) is partial:
        inner = inner.func
    is_frame = calls_frame(func)
    about = None if is_frame else known(inner)
    is_known = not _is_lost(func.__self__) if type(func) is MethodType else is_frame or about is not None
    is_known |= func is ndeepmap  # of batches
    try:
        number = number_of(func) if is_known and not is_frame else None
    except TypeError:  # an argument that cannot be compared
        number = None
    seed = about.seed if about is not None and inner is func else None
    return Function(
        is_known, number, is_frame or func is last or func is _identity_cast or func is ndeepmap, seed
    )


def gives_nothing(task: Task, functions: ByIdentity[Function]) -> bool:
    """Whether no fact comes of a task: it calls what nothing is known of, or takes what that gives."""
    function = functions.of(task.func, function_of)
    if task.func is pipe and task.args:
        function = functions.of(task.args[-1], lambda _: _of_program(task.args[1:]))
    if function.is_special or not function.is_known:
        return not function.is_known
    calls = [task]
    while calls:
        args = calls.pop().args
        if _hands_unknown(args):
            return True
        if Task in map(type, args):
            for arg in args:
                if type(arg) is Task:
                    function = functions.of(arg.func, function_of)
                    if function.is_special:
                        continue
                    if not function.is_known:
                        return True
                    calls.append(arg)
    return False


def _hands_unknown(args: Sequence[Any]) -> bool:
    """Whether a function is handed to one of dask's, which calls it, of which nothing is known."""
    return bool(args) and type(args[0]) is FunctionType and known(args[0]) is None


def _of_program(calls: Sequence[Any]) -> Function:
    """What is known of what a program gives; its last step is its own."""
    bodies = [getattr(call, "__self__", None) for call in calls]
    lost: frozenset[Any] = frozenset()
    for body in bodies[:-1]:
        values = body.kwargs if type(body) is Task and body.func is dict else {}
        lost = frozenset([name for name, value in values.items() if _is_lost(value, lost)])
    return Function(not _is_lost(bodies[-1], lost), None, True, None)


def _is_lost(body: Any, lost: Set[Any] = frozenset()) -> bool:
    """Whether what an expression gives is unknown whatever its inputs are: one look for a whole layer."""
    if type(body) is TaskRef:
        return body.key in lost
    if type(body) is Task:
        func = body.func
        if calls_frame(func) or func is last:
            return False
        while type(func) is partial:
            func = func.func
        if func is not _identity_cast and (known(func) is None or _hands_unknown(body.args)):
            return True
    elif type(body) is not List:
        return False
    return any(_is_lost(arg, lost) for arg in body.args)


def keywords_of(kwargs: dict[str, Any]) -> Keywords:
    """Look at keywords."""
    has_blocks = any(isinstance(arg, (GraphNode, TaskRef)) for arg in kwargs.values())
    try:
        signed = None if has_blocks else signature(kwargs)
    except TypeError:  # an argument that cannot be compared
        signed = None
    return Keywords(has_blocks, signed)


def transferred(func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a call of a known function gives, found out by what is known of it."""
    transfer = known(func)
    if transfer is None or transfer.fact is None:
        return UNKNOWN
    try:
        found = transfer.fact(*args, **kwargs)
    except Exception:  # what would fail or is unusual: nothing is known
        return UNKNOWN
    return UNKNOWN if found is None else intern(found)
