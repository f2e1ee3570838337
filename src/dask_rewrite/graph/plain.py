"""What pickle would make of an object: its attributes as they are, or something of the object's own."""

from __future__ import annotations

import copyreg
import sys
from contextlib import suppress
from typing import Any

import cloudpickle

_plain_kinds: dict[type, bool] = {}


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


#: What a class may define to be pickled in a way of its own.
_PICKLING = ("__reduce_ex__", "__reduce__", "__getstate__")


def attributes_of(value: Any) -> dict[str, Any]:
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
        return False  # out of band: memory is weighed without being copied

    def _add(self, size: int) -> None:
        self.nbytes += size
        if self.nbytes > self.enough:
            raise _Enough


def pickled_up_to(value: Any, enough: int) -> int:
    """Bytes of a pickled object, or a number above ``enough`` as soon as that is certain.

    Examples
    --------
    >>> pickled_up_to(bytes(50), 1000) < 200
    True
    >>> pickled_up_to(bytes(10_000_000), 1000) > 1000
    True
    """
    scale = _Scale(enough)
    try:
        cloudpickle.Pickler(scale, protocol=5, buffer_callback=scale.add_buffer).dump(value)
    except _Enough:
        pass
    except Exception:
        distributed = sys.modules.get("distributed.protocol.pickle")
        if distributed is None:
            raise
        scale = _Scale(enough)
        with suppress(_Enough):
            distributed._DaskPickler(scale, protocol=5, buffer_callback=scale.add_buffer).dump(value)
    return scale.nbytes
