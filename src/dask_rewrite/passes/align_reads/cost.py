"""What it costs to read a file: whether chunks that lie in two blocks are better decoded twice."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from dask_rewrite.analysis.knowledge.loading import file_of
from dask_rewrite.analysis.knowledge.xarray_files import ADAPTER
from dask_rewrite.passes.align_reads.reads import File

#: Seconds that may be lost by decoding each chunk once; what a byte takes that is put in its place.
_LOST, _COPY = 0.05, 3e-10


class Cost(NamedTuple):
    """What reads of a file take, in seconds.

    Parameters
    ----------
    call : float
        Of a read, however small.
    chunk : float
        Of each chunk that it touches.
    byte : float
        Of each byte of such a chunk.
    """

    call: float
    chunk: float
    byte: float


#: xarray's reads of netCDF files; stores of Zarr elsewhere (100 MB in a second) and here; HDF5.
_NETCDF, _REMOTE = Cost(1e-3, 1e-4, 2e-9), Cost(1e-2, 2e-3, 1e-8)
_LOCAL, _HDF5 = Cost(2e-4, 1.2e-4, 0), Cost(3e-5, 5e-6, 0)
_FAR = {"FsspecStore", "ObjectStore", "FSStore", "ABSStore"}
#: Seconds for each byte: of what is not compressed, of codecs that take longer than others, of others.
_PLAIN, _OTHERS = 2e-10, 1e-9
_SLOW_CODECS = {"zlib": 3e-9, "gzip": 3e-9, "lzma": 2e-8, "bz2": 3e-8}
#: So many chunks in the cache of an HDF5 dataset: neighbours find there what they share.
_CACHED = 4


def loses_time(file: File, saved: int, added: int, copied: int) -> bool:
    """Whether so many chunks are not worth so many more reads and bytes to copy, and it costs something."""
    nbytes = prod(file.chunks) * file.source.dtype.itemsize
    call, chunk, byte = cost_of(file.source, nbytes)
    lost: float = added * call + copied * _COPY - saved * (chunk + nbytes * byte)
    return lost > _LOST


def cost_of(source: Any, nbytes: int) -> Cost:
    """What it takes to read a file whose chunks have so many bytes.

    Examples
    --------
    >>> import zarr
    >>> cost_of(zarr.zeros((6, 4), chunks=(3, 2)), 48)
    Cost(call=0.0002, chunk=0.00012, byte=1e-09)
    """
    file = file_of(source)
    stored: Any = None if file is None else file.stored
    kind = type(stored).__name__
    if kind == "Array":
        far = type(stored.store).__name__ in _FAR
        return _REMOTE if far else _LOCAL._replace(byte=_decoding(_codecs(stored)))
    if type(source).__name__ == ADAPTER:
        return _NETCDF
    plist = stored.id.get_create_plist()
    codecs = [stored.compression or ""] if plist.get_nfilters() else []
    cached = _CACHED * nbytes <= stored.id.get_access_plist().get_chunk_cache()[1]
    return _HDF5._replace(byte=_PLAIN if cached else _decoding(codecs))


def _codecs(stored: Any) -> list[str]:
    """The names of what compresses the chunks of a Zarr array."""
    found = getattr(stored, "compressors", None)
    if found is None:  # before Zarr 3
        found = [stored.compressor] if stored.compressor is not None else []
    return [type(codec).__name__ for codec in found]


def _decoding(codecs: list[str]) -> float:
    """Seconds that each byte takes."""
    if not codecs:
        return _PLAIN
    slow = [seconds for name, seconds in _SLOW_CODECS.items() if any(name in one.lower() for one in codecs)]
    return max(slow, default=_OTHERS)
