"""Functions of SciPy and xarray that only read; no library is imported only to know its functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dask_rewrite.analysis.knowledge.blocks import array
from dask_rewrite.analysis.knowledge.elementwise import elementwise, of_ufunc, where
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Call, Known
from dask_rewrite.analysis.knowledge.read_only import reads
from dask_rewrite.graph.nodes import literal

#: Each point of the image becomes another one, of the same dtype.
_FILTERS = (
    *("gaussian_filter", "gaussian_filter1d", "gaussian_laplace", "gaussian_gradient_magnitude", "laplace"),
    *("sobel", "prewitt", "uniform_filter", "uniform_filter1d", "median_filter", "rank_filter"),
    *("percentile_filter", "minimum_filter", "minimum_filter1d", "maximum_filter", "maximum_filter1d"),
    *("convolve", "convolve1d", "correlate", "correlate1d", "grey_erosion", "grey_dilation"),
    *("grey_opening", "grey_closing", "white_tophat", "black_tophat", "morphological_gradient"),
)
_IMAGES = (
    *("binary_erosion", "binary_dilation", "binary_opening", "binary_closing", "binary_fill_holes"),
    *("binary_hit_or_miss", "binary_propagation", "label", "find_objects", "center_of_mass", "sum_labels"),
    *("mean", "variance", "standard_deviation", "minimum", "maximum", "extrema", "median", "histogram"),
    *("affine_transform", "map_coordinates", "spline_filter", "spline_filter1d", "fourier_gaussian"),
    *("zoom", "rotate", "shift"),
)
_TRANSFORMS = (
    *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn"),
    *("rfftn", "irfftn", "dct", "idct", "dst", "idst", "dctn", "idctn", "dstn", "idstn"),
)
_SIGNALS = (
    *("convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve", "oaconvolve", "savgol_filter"),
    *("lfilter", "filtfilt", "sosfilt", "sosfiltfilt", "hilbert", "detrend", "decimate", "resample"),
    *("resample_poly", "medfilt", "medfilt2d", "wiener", "welch", "periodogram", "spectrogram", "csd"),
)
_UFUNCS = (
    *("erf", "erfc", "erfinv", "expit", "logit", "gamma", "gammaln", "psi", "beta", "betainc", "gammainc"),
    *("exp1", "expi", "xlogy", "xlog1py", "entr", "rel_entr", "kl_div", "huber", "boxcox", "inv_boxcox"),
    *("ndtr", "ndtri", "i0", "i1", "j0", "j1", "jv", "iv", "kv", "cbrt", "exp10", "log1p"),
)


def _filtered(image: Any, *args: Any, **kwargs: Any) -> Any:
    fact = array(image)
    if fact is None or fact.dtype.kind not in "biuf" or fact.dtype.char in "eg" or "axes" in kwargs:
        return None
    return Fact(fact.shape, fact.dtype.newbyteorder("="))


def _filled_on(before: Any, block: Any) -> Any:
    """``_fill_with_last_one``: ``np.where(np.isnan(block), before, block)``."""
    return where(elementwise(np.isnan, block), before, block)


def _first_or_last(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    return [(literal(kwargs["op"]), args, {})]


def _each(module: str, names: Sequence[str], make: Callable[[Any], Known]) -> dict[tuple[str, str], Any]:
    return dict.fromkeys([(module, name) for name in names], make)


#: By module and name, what makes the record once somebody has imported the module.
OTHER_LIBRARIES: dict[tuple[str, str], Callable[[Any], Known]] = {
    **_each("scipy.ndimage", _FILTERS, partial(reads, fact=_filtered)),
    **_each("scipy.ndimage", _IMAGES, reads),
    **_each("scipy.fft", _TRANSFORMS, partial(reads, fresh=False)),  # along no axes: what it was given
    **_each("scipy.special", _UFUNCS, of_ufunc),
    **_each("scipy.signal", _SIGNALS, partial(reads, fresh=False)),
    ("xarray.compat.dask_array_ops", "_fill_with_last_one"): lambda _: Known(_filled_on),
    ("xarray.core.duck_array_ops", "_first_last_wrapper"): lambda _: Known(calls=_first_or_last),
    **_each("xarray.core.nputils", ("nanfirst", "nanlast"), lambda _: Known()),
    ("xarray.core.missing", "_interpnd"): lambda _: Known(fresh=False),
}
