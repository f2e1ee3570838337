"""What an object weighs when it is pickled, and what pickle takes as it is."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

import cloudpickle

_plain_kinds: dict[type, bool] = {}
#: What a class may define to be pickled in a way of its own.
_PICKLING = ("__reduce_ex__", "__reduce__", "__getstate__")


def is_plain(kind: type) -> bool:
    """Whether pickle takes the attributes of such objects as they are."""
    found = _plain_kinds.get(kind)
    if found is None:
        found = (
            all(getattr(kind, name, None) is getattr(object, name) for name in _PICKLING)
            and not hasattr(kind, "__getnewargs__")
            and not hasattr(kind, "__getnewargs_ex__")
            and kind not in copyreg.dispatch_table
            and bool(kind.__dictoffset__ or "__slots__" in vars(kind))  # else it is not written in Python
        )
        if len(_plain_kinds) < 10_000:
            _plain_kinds[kind] = found
    return found


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots as well."""
    found = dict(getattr(value, "__dict__", ()))
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            descriptor: Any = vars(base).get(name)
            try:
                found[name] = descriptor.__get__(value, base)
            except AttributeError:
                continue
    return found


#: What is written at once is shorter, but for the contents of large objects.
_FRAME = 1 << 20


class _Enough(BaseException):
    """Heavy already: no need to go on."""


class _Scale:
    """A file that weighs what is written to it and forgets it."""

    def __init__(self, enough: int) -> None:
        self.nbytes = 0
        self.enough = enough

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._add(size)
        return size

    def add_buffer(self, buffer: Any) -> bool:
        self._add(buffer.raw().nbytes)
        return False  # out of band: the memory of an array is weighed without being copied

    def _add(self, size: int) -> None:
        self.nbytes += size
        if self.nbytes > self.enough:
            raise _Enough


class _Reading(_Scale):
    """One that sees whether something is named that only this process can import."""

    of_main = False

    def write(self, data: Any) -> int:
        size = super().write(data)
        self.of_main = self.of_main or (size < _FRAME and b"__main__" in bytes(data))
        return size


class _Weighing(cloudpickle.Pickler):  # type: ignore[misc] # has no types
    """Does not look for functions without a module in all that are imported, which may import more."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is FunctionType and getattr(obj, "__module__", None) is None:
            return self._dynamic_function_reduce(obj)
        return super().reducer_override(obj)


def pickled_size(value: Any) -> int:
    """Bytes of a pickled object; raises whatever pickling it raises.

    Memory is not copied where the object can hand it out, as arrays can.

    Examples
    --------
    >>> pickled_size(bytes(1000)) > 1000
    True
    >>> pickled_size(lambda: 1) > 0
    True
    """
    return pickled_up_to(value, sys.maxsize, _distributed_pickler)


def size_if_pickled(value: Any) -> int | None:
    """Bytes of a pickled object, None where it cannot be pickled: ``preflight`` tells why."""
    try:
        return pickled_size(value)
    except Exception:
        return None


def _loaded_pickler() -> Any:
    """The pickler of distributed, where that is in use."""
    module = sys.modules.get("distributed.protocol.pickle")
    return None if module is None else module._DaskPickler


def pickled_up_to(value: Any, enough: int, fallback: Callable[[], Any] = _loaded_pickler) -> int:
    """Bytes of a pickled object, or a number above ``enough`` as soon as that is certain.

    Examples
    --------
    >>> pickled_up_to(bytes(50), 1000) < 200
    True
    >>> pickled_up_to(bytes(10_000_000), 1000) > 1000
    True
    """
    try:
        return _weighed(value, _Scale(enough), _Weighing)
    except Exception:
        pickler = fallback()
        if pickler is None:
            raise
        scale = _Reading(enough)
        with suppress(Exception):
            _weighed(value, scale, pickler)
            if not scale.of_main:  # else distributed takes cloudpickle as well
                return scale.nbytes
        raise


def _weighed(value: Any, scale: _Scale, pickler: Any) -> int:
    with suppress(_Enough):
        pickler(scale, protocol=5, buffer_callback=scale.add_buffer).dump(value)
    return scale.nbytes


def by_reference(function: Any) -> bool:
    """Whether a function or class is pickled as the name under which it can be imported."""
    module = getattr(function, "__module__", None)
    if module is None or module == "__main__":
        return False
    found: Any = sys.modules.get(module)
    for name in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is function


def _distributed_pickler() -> Any:
    """The pickler that distributed falls back to: it knows more types than cloudpickle does."""
    try:
        from distributed.protocol.pickle import _DaskPickler
    except ImportError:
        return None
    return _DaskPickler
