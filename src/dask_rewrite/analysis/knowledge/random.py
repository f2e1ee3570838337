"""Random blocks: their types are known, but two draws are never the same task."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import dask
import numpy as np
from dask.array import random

from dask_rewrite.analysis.knowledge.blocks import flat, plain
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Known

#: Methods of generators that draw numbers one by one.
_FLOATS = frozenset(
    (
        *("random", "random_sample", "normal", "standard_normal", "uniform", "exponential", "gamma", "beta"),
        *("standard_exponential", "standard_gamma", "chisquare", "noncentral_chisquare", "f", "standard_t"),
        *("noncentral_f", "standard_cauchy", "vonmises", "pareto", "weibull", "power", "laplace", "gumbel"),
        *("logistic", "lognormal", "rayleigh", "wald", "triangular"),
    )
)
_COUNTS = frozenset(
    ("poisson", "binomial", "negative_binomial", "geometric", "hypergeometric", "logseries", "zipf")
)


def _of_generator(kind: Any, funcname: str, seed: Any, size: Any, args: Any, kwargs: Any) -> Any:
    """``random._apply_random_func``: a generator around the seed of the block."""
    if not _is_numpy(kind) or not _is_numpy(type(seed)):
        return None
    return _drawn(_new_kinds, funcname, size, kwargs)


def _of_state(kind: Any, funcname: str, seed: Any, size: Any, args: Any, kwargs: Any) -> Any:
    """``random._apply_random``: a legacy generator, by default that of the backend."""
    if kind is None and dask.config.get("array.backend", "numpy") != "numpy":
        return None
    if kind is not None and kind is not np.random.RandomState:
        return None
    return _drawn(_old_kinds, funcname, size, kwargs)


def _is_numpy(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__.startswith("numpy.")


def _drawn(kinds: Callable[[], tuple[Any, Any]], funcname: str, size: Any, kwargs: dict[str, Any]) -> Any:
    given = kwargs.get("dtype")
    if not size or kwargs.get("out") is not None:
        return None
    if funcname in _FLOATS:
        made = np.dtype(float if given is None else given)
    elif funcname in _COUNTS and given is None:
        made = kinds()[0]
    elif funcname in ("integers", "randint"):
        made = kinds()[1] if given is None else np.dtype(given)
    else:
        return None
    return Fact(flat(size), made) if plain(made) else None


@cache
def _new_kinds() -> tuple[Any, Any]:
    """What counts and integers of a generator are on this machine."""
    generator = np.random.default_rng(0)
    return generator.poisson(size=1).dtype, generator.integers(2, size=1).dtype


@cache
def _old_kinds() -> tuple[Any, Any]:
    state = np.random.RandomState(0)
    return state.poisson(size=1).dtype, state.randint(2, size=1).dtype


#: What is known of functions that draw random blocks.
DRAWING: dict[Callable[..., Any], Known] = {
    of_dask(random, "_apply_random_func"): Known(_of_generator, pure=False, seed=2),
    of_dask(random, "_apply_random"): Known(_of_state, pure=False, seed=2),
}
