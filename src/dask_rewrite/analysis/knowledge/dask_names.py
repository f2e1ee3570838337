"""Functions of dask that some versions have and others have not."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class _Missing:
    """Stands in a table for a function that this version of dask does not have."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(self.name)


def of_dask(module: ModuleType, name: str) -> Any:
    """A function of dask, or something that equals nothing else where it is missing.

    Examples
    --------
    >>> from dask.array import core
    >>> of_dask(core, "getter") is core.getter
    True
    >>> of_dask(core, "getter") == of_dask(core, "no_such_function")
    False
    """
    return getattr(module, name, None) or _Missing(f"{module.__name__}.{name}")
