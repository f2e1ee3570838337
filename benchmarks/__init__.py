"""Benchmarks: stock dask, dask_rewrite and dask-array side by side in one run."""
