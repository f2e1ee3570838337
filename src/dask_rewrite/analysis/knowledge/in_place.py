"""Operators that write their result into their first argument."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dask_rewrite.analysis.knowledge.blocks import array
from dask_rewrite.analysis.knowledge.elementwise import elementwise
from dask_rewrite.analysis.knowledge.known import Call, Known
from dask_rewrite.analysis.knowledge.lookup import known_call

#: By the operator that writes into its first argument, the one that makes a new array.
IN_PLACE: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ipow: operator.pow,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
}


def _written(func: Any, block: Any, value: Any) -> Any:
    fact, found = array(block), elementwise(func, block, value)
    if fact is None or found is None or not fact.shape:
        return None
    return found if (fact.shape, fact.dtype) == (found.shape, found.dtype) else None


def _into_its_own(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    """Known only where it writes into what a call inside the same expression has just made."""
    block = args[0]
    made = known_call(block.func, block.args, block.kwargs)
    if made is None or made.fresh is not True:
        raise ValueError("somebody else may have what is written into")
    return []


WRITING: dict[Callable[..., Any], Known] = {
    func: Known(partial(_written, plain), calls=_into_its_own) for func, plain in IN_PLACE.items()
}
