"""So many threads of kernels, BLAS and torch, within this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits


@contextmanager
def threads_of(count: int) -> Iterator[None]:
    """As a process that was started with OMP_NUM_THREADS and its like, which costs seconds."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patched, threadpool_limits(limits=count):
        patched.setenv("OMP_NUM_THREADS", str(count))
        torch.set_num_threads(count)
        pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert pools == [count] * len(pools) != []
        try:
            yield
        finally:
            torch.set_num_threads(before)
