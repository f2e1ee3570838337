"""The package as pip installs it, with nothing but its own requirements: it works, its files are there."""

import importlib.metadata
import importlib.resources
import importlib.util

import dask
import dask.array as da
import dask.delayed
import numpy as np

for name in ("distributed", "xarray", "pandas", "pytest"):
    assert importlib.util.find_spec(name) is None, f"{name} is installed, so this shows nothing"

before = dask.config.get("array_optimize", None)

import dask_rewrite  # noqa: E402  the configuration before and after importing it is compared

assert dask.config.get("array_optimize", None) is before
files = {file.name for file in importlib.resources.files(dask_rewrite).iterdir()}
assert {"py.typed", "rewrite.yaml", "rewrite-schema.yaml"} <= files, files
assert "site-packages" in dask_rewrite.__file__, dask_rewrite.__file__
assert dask.config.get("rewrite.on-error") == "warn"

# What pip installs: one folder and one more word of the `dask` command, nothing that runs at start-up.
installed = importlib.metadata.distribution("dask-rewrite")
folders = {str(file).partition("/")[0] for file in installed.files or ()}
assert folders == {"dask_rewrite", f"dask_rewrite-{dask_rewrite.__version__}.dist-info"}, folders
assert [(point.group, point.name) for point in installed.entry_points] == [("dask_cli", "rewrite")]

x = da.from_array(np.arange(36.0).reshape(6, 6), chunks=2)
y = (x + x.T)[:4].sum(axis=0)
expected = y.compute()
with dask_rewrite.enable(), dask.config.set({"rewrite.on-error": "raise"}):
    np.testing.assert_array_equal(y.compute(), expected)
    assert dask.delayed(sum)([1, 2, dask.delayed(3)]).compute() == 6
assert dask_rewrite.explain(y).after.tasks <= dask_rewrite.explain(y).before.tasks
print("works without the optional packages")
