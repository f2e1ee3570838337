"""The shortest way in: import and forget.

python examples/quickstart.py
"""

import dask
import dask.array as da
import numpy as np

import dask_rewrite
import dask_rewrite.auto  # from here on every computation is rewritten first

x = da.random.default_rng(0).random((1000, 1000), chunks=(100, 100))
y = x + x.T
z = y[::2, 500:].mean(axis=1)

answer = z.compute()

# The same without us: `disable` switches back to dask's own optimizer.
dask_rewrite.disable()
assert np.array_equal(answer, z.compute())

# One computation at a time, or one collection at a time, is as easy.
with dask.config.set(array_optimize=dask_rewrite.optimize):
    assert np.array_equal(answer, z.compute())
small = dask_rewrite.optimize(z)
assert np.array_equal(answer, small.compute())

print(f"{len(z.dask)} tasks as built, {len(small.dask)} tasks rewritten; mean {answer.mean():.4f}")
