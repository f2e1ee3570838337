"""Dask's own task nodes, the graph of them, and how to build, read, copy and check them."""
