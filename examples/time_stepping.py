"""A recurrence of two terms, a thousand steps long.

dask's own optimizer nests one task in another for every step: past some 220 steps the graph cannot
be pickled and a computation on a cluster never ends; past 280 steps threads run out of stack.

    python examples/time_stepping.py
"""

import time

import dask.array as da
import numpy as np

import dask_rewrite

STEPS = 1000

a = da.linspace(0, 1, 4, chunks=1)
b = a + 1
for _ in range(STEPS):
    a, b = b, (a + b) * 0.5

with dask_rewrite.enable():
    start = time.perf_counter()
    answer = b.compute()
    seconds = time.perf_counter() - start

# The same in NumPy.
p = np.linspace(0, 1, 4)
q = p + 1
for _ in range(STEPS):
    p, q = q, (p + q) * 0.5
assert np.array_equal(answer, q)

print(f"{STEPS} steps in {seconds:.2f} s: {answer}")
