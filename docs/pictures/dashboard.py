"""What the dashboard's stream of tasks shows of the walk-through's anomaly, before and after.

``python docs/pictures/dashboard.py`` writes two pictures beside this file. It needs xarray, Zarr, bokeh
and Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from dask.utils import key_split

import dask_rewrite
from distributed import Client, get_task_stream

HERE = Path(__file__).parent
SIZE = "720,330"


def program(folder: str) -> xr.DataArray:
    """How far each day is from the mean of its month, at one place: as the walk-through has it."""
    values = np.random.default_rng(0).normal(280, 5, (365, 60, 120))
    days = pd.date_range("2024-01-01", periods=365)
    made = xr.Dataset({"t": (("time", "lat", "lon"), values)}, {"time": days})
    made.to_zarr(f"{folder}/t.zarr", zarr_format=2, encoding={"t": {"chunks": (10, 30, 30)}})
    t = xr.open_zarr(f"{folder}/t.zarr").t
    months = t.groupby("time.month")
    return (months - months.mean()).isel(lat=50, lon=70)


def streamed(anomaly: xr.DataArray, page: Path, on: Any) -> list[str]:
    """Compute on two workers and write the stream of tasks as a page; the names of what ran."""
    with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client:
        anomaly[:9].compute()  # what is imported is imported
        with get_task_stream(client, plot="save", filename=str(page)) as stream, on():
            anomaly.compute()
    return [key_split(entry["key"]) for entry in stream.data]


def photographed(page: Path, picture: Path) -> None:
    """A picture of the page as a browser shows it."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={SIZE}"]
    words += ["--virtual-time-budget=5000", "--hide-scrollbars", f"--screenshot={picture}", page.as_uri()]
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([*words, f"--user-data-dir={profile}"], check=True, capture_output=True, timeout=100)


if __name__ == "__main__":
    os.environ["BOKEH_RESOURCES"] = "inline"  # pages that need no network
    with tempfile.TemporaryDirectory() as folder:
        anomaly = program(folder)
        for name, on in (("before", nullcontext), ("after", dask_rewrite.enable)):
            page = Path(folder, f"{name}.html")
            names = streamed(anomaly, page, on)
            photographed(page, HERE / f"dashboard-{name}.png")
            print(f"{name}: {len(names)} tasks, {len(set(names))} names")
