"""Import and forget: ``import dask_rewrite.auto`` switches the optimizer on."""

from dask_rewrite.hook.switch import Auto

Auto()
