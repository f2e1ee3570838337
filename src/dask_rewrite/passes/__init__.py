"""The passes, one file or folder each; :mod:`dask_rewrite.pipeline.selection` puts them in order."""
