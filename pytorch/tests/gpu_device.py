"""The GPU of the tests that need one.

A file takes the fixture in by `from gpu_device import gpu`. Its tests are skipped where torch finds no CUDA
device, and fail there with FOREBAY_REQUIRE_CUDA set.
"""

from __future__ import annotations

import os

import pytest
import torch

__all__ = ["DEVICE", "gpu"]

DEVICE = "cuda"


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    """Skips the tests of a file where there is no CUDA device."""
    if torch.cuda.is_available():
        return
    if os.environ.get("FOREBAY_REQUIRE_CUDA"):
        pytest.fail("torch finds no CUDA device, and FOREBAY_REQUIRE_CUDA is set")
    pytest.skip("needs a GPU: torch finds no CUDA device")
