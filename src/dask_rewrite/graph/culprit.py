"""Which part of an object cannot be pickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from dask._task_spec import DataNode, Task

from dask_rewrite.graph.held import Held
from dask_rewrite.graph.pickling import pickled_size

#: Parts of one object that are tried, and how far down.
_WIDTH = 10_000
_DEPTH = 40
Part = tuple[str, Any]
_LEAVES = (str, bytes, bytearray, int, float, complex, type(None), ModuleType, CodeType, BuiltinFunctionType)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The innermost part of an object that cannot be pickled.

    Parameters
    ----------
    path : tuple of str
        How to get there from the object that was asked about, in words.
    kind : str
        Type of the part.
    error : str
        What pickling it says.
    """

    path: tuple[str, ...]
    kind: str
    error: str


def culprit(value: Any) -> Culprit | None:
    """The innermost part of ``value`` that cannot be pickled; None where all of it can.

    Examples
    --------
    >>> from functools import partial
    >>> print(culprit(partial(print, file=(n for n in range(3)))))
    Culprit(path=("keyword 'file' of a partial",), kind='generator', error="cannot pickle 'generator' object")
    """
    error = _failure(value)
    if error is None:
        return None
    path: list[str] = []
    on_path = [value]  # kept alive: a new object at an old address is not the old object
    while len(path) < _DEPTH:
        for label, part in islice(parts(value), _WIDTH):
            if any(part is above for above in on_path):
                continue
            failure = _failure(part)
            if failure is not None:
                path.append(label)
                on_path.append(part)
                value, error = part, failure
                break
        else:
            break
    return Culprit(tuple(path), _kind(value), error)


def parts(value: Any) -> Iterator[Part]:
    """What an object takes with it when it is pickled, each with a name for it."""
    kind = type(value)
    if isinstance(value, Task):
        yield _name(value.func), value.func
        yield from ((f"argument {i}", arg) for i, arg in enumerate(value.args))
        yield from ((f"keyword argument {name!r}", arg) for name, arg in value.kwargs.items())
    elif isinstance(value, (DataNode, Held)):
        yield "value", value.value
    elif isinstance(value, partial):
        yield f"{_name(value.func)} of a partial", value.func
        yield from ((f"argument {i} of a partial", arg) for i, arg in enumerate(value.args))
        yield from ((f"keyword {name!r} of a partial", arg) for name, arg in value.keywords.items())
    elif kind is MethodType:
        yield f"object of the bound method {value.__name__!r}", value.__self__
        yield f"function of the bound method {value.__name__!r}", value.__func__
    elif kind is FunctionType:
        yield from _function_parts(value)
    elif isinstance(value, Mapping) and kind.__module__ == "builtins":
        yield from ((f"item {_short(name)}", item) for name, item in value.items())
        yield from ((f"key {_short(name)}", name) for name in value)
    elif kind in (list, tuple, set, frozenset):
        yield from ((f"element {i}", item) for i, item in enumerate(value))
    elif isinstance(value, type):
        yield from ((f"class attribute {name!r}", item) for name, item in vars(value).items())
    elif not isinstance(value, _LEAVES):
        yield from _object_parts(value)


def _function_parts(function: FunctionType) -> Iterator[Part]:
    """A function that cannot be imported takes its closure, defaults and globals along."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"closure variable {name!r} of {_name(function)}", cell.cell_contents
        except ValueError:
            continue  # an empty cell
    for value in function.__defaults__ or ():
        yield f"default of {_name(function)}", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f"default of {name!r} of {_name(function)}", value
    stack: list[Any] = [code]
    seen = set()
    while stack:
        code = stack.pop()
        stack += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            if name in function.__globals__ and name not in seen:
                seen.add(name)
                yield f"global variable {name!r} of {_name(function)}", function.__globals__[name]


def _object_parts(value: Any) -> Iterator[Part]:
    """What the object itself says it consists of; its own error is not ours to pass on."""
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:
        return
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        return
    owner = type(value).__name__
    # The attributes first: their names say more than positions do.
    state = reduced[2] if len(reduced) > 2 else None
    for attributes in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if isinstance(attributes, dict):
            yield from ((f"attribute {name!r} of {owner}", item) for name, item in attributes.items())
        elif attributes is not None:
            yield f"state of {owner}", attributes
    for i, item in enumerate(reduced[1]):
        yield f"constructor argument {i} of {owner}", item
    if len(reduced) > 3 and reduced[3] is not None:
        yield from ((f"element {i} of {owner}", item) for i, item in enumerate(reduced[3]))
    if len(reduced) > 4 and reduced[4] is not None:
        yield from ((f"item {_short(name)} of {owner}", item) for name, item in reduced[4])


def _failure(value: Any) -> str | None:
    try:
        pickled_size(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _name(function: Any) -> str:
    name = getattr(function, "__name__", None)
    return f"function {name}" if isinstance(name, str) else f"callable {type(function).__name__}"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 40 else text[:37] + "..."
