"""A legacy routine, called on an array at each of a thousand steps.

The array becomes a delayed value and an array again at each turn. dask nests each step in the
next while the loop is running, and past 150 turns nothing can send or run that graph. Here it is
taken apart again before it is sent.

    python examples/delayed_loop.py
"""

import dask.array as da
import numpy as np
from dask.delayed import delayed

import dask_rewrite


@delayed
def legacy(block):
    """A routine that wants the whole array."""
    return block * 0.5 + 1


TURNS = 1000

x = da.from_array(np.arange(10.0), chunks=10)
for _ in range(TURNS):
    x = da.from_delayed(legacy(x), shape=(10,), dtype=float)

with dask_rewrite.enable():
    answer = x.compute()

expected = np.arange(10.0)
for _ in range(TURNS):
    expected = expected * 0.5 + 1
assert np.array_equal(answer, expected)

print(f"{TURNS} turns: {answer[:3]} ...")
