"""In from dask, out to dask."""
