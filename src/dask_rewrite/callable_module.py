"""Let a module be called like the function it is named after."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def call_as(function: Callable[..., Any]) -> None:
    """Make the module that defines ``function`` callable.

    ``dask_rewrite.bisect`` names both a function and the module that holds it. Python binds the name to the
    module when that is imported first, and ``dask_rewrite.bisect(check)`` has to work then as well.
    """

    class CallableModule(ModuleType):
        __doc__ = sys.modules[function.__module__].__doc__

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    sys.modules[function.__module__].__class__ = CallableModule
