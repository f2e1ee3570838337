"""The passes, one file each; :mod:`dask_rewrite.pipeline` puts them in order."""
