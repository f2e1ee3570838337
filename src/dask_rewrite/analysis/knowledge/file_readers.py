"""Functions that read a whole file, given its path: called again, they give the same."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask._task_spec import TaskRef

from dask_rewrite.analysis.knowledge.imported import imported
from dask_rewrite.analysis.knowledge.known import through_partials

_NUMPY = (np.load, np.fromfile, np.loadtxt, np.genfromtxt)
#: The same of libraries that are known only where somebody has imported them.
_MODULES = ("tifffile", "skimage.io", "imageio", "imageio.v2", "imageio.v3", "matplotlib.image", "cv2")
#: What such a function may be told: nothing that could be used up or written into.
_PLAIN = (str, bytes, os.PathLike, int, float, bool, type, np.dtype, type(None), slice, tuple, TaskRef)


def reads_file(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call reads a file from its beginning, whoever read it before.

    In a template a reference stands for what that is given: ask :func:`lasts` of it.

    Examples
    --------
    >>> reads_file(np.load, ("a.npy",), {})
    True
    >>> reads_file(np.load, ("a.npy",), {"mmap_mode": "r+"}), reads_file(np.load, (open,), {})
    (False, False)
    """
    func, args, kwargs = through_partials(func, args, kwargs)
    if not args or not isinstance(args[0], (str, os.PathLike, TaskRef)):
        return False
    if (func is np.load and len(args) > 1) or kwargs.get("mmap_mode") is not None:
        return False
    if not all(map(lasts, (*args, *kwargs.values()))):
        return False
    known = (*_NUMPY, *[imported(module, "imread") for module in _MODULES])
    return func is not None and any(func is each for each in known)


def lasts(value: Any) -> bool:
    """Whether a function cannot use up a value or write into it."""
    return isinstance(value, _PLAIN)


def adds_axis(func: Any) -> bool:
    """Whether it is what :func:`dask.array.image.imread` calls with each image."""
    return func is not None and func is imported("dask.array.image", "add_leading_dimension")
