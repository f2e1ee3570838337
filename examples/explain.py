"""Ask what was rewritten, what it was worth, and what was not done and why.

python examples/explain.py
"""

import dask.array as da

import dask_rewrite

x = da.from_array(da.random.default_rng(0).random((400, 400)).compute(), chunks=50)
y = (x - x.mean(axis=0)) / x.std(axis=0)

report = dask_rewrite.explain(y, nbytes=True)
print(report)

assert "tasks" in repr(report)
assert report._repr_html_().startswith("<")
