"""A graph-rewriting optimizer for Dask: the same answer from a smaller, shallower, cheaper graph.

Switch it on in one of three ways::

    import dask_rewrite.auto                                  # import and forget
    dask.config.set(array_optimize=dask_rewrite.optimize)     # by configuration
    y = dask_rewrite.optimize(x)                              # on a collection
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_rewrite import config as _config
from dask_rewrite._version import __version__
from dask_rewrite.remarks import MemoryLimitError, Remark, RewriteWarning

_config.register()

from dask_rewrite.hook.optimizer import optimize  # noqa: E402 - reads the defaults
from dask_rewrite.hook.switch import disable, enable  # noqa: E402 - reads them too

if TYPE_CHECKING:
    from dask_rewrite.tools.bisect import bisect
    from dask_rewrite.tools.explain import Report, explain
    from dask_rewrite.tools.explain_error import ErrorReport, explain_error
    from dask_rewrite.tools.forecast import Forecast, forecast
    from dask_rewrite.tools.preflight import PreflightReport, preflight
    from dask_rewrite.tools.status import Status, status

#: Tools that most programs never use: imported when asked for.
_LAZY = {
    "bisect": "dask_rewrite.tools.bisect",
    "explain": "dask_rewrite.tools.explain",
    "explain_error": "dask_rewrite.tools.explain_error",
    "ErrorReport": "dask_rewrite.tools.explain_error",
    "forecast": "dask_rewrite.tools.forecast",
    "Forecast": "dask_rewrite.tools.forecast",
    "preflight": "dask_rewrite.tools.preflight",
    "PreflightReport": "dask_rewrite.tools.preflight",
    "Report": "dask_rewrite.tools.explain",
    "status": "dask_rewrite.tools.status",
    "Status": "dask_rewrite.tools.status",
}

__all__ = [
    "ErrorReport",
    "Forecast",
    "MemoryLimitError",
    "PreflightReport",
    "Remark",
    "Report",
    "RewriteWarning",
    "Status",
    "__version__",
    "bisect",
    "disable",
    "enable",
    "explain",
    "explain_error",
    "forecast",
    "optimize",
    "preflight",
    "status",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
