"""The processes that `torchrun` started: sums over them, their order, and one message for one error.

Without torchrun there is one process, and these functions do nothing. Processes exchange data with gloo, on the CPU.
Only the gradients of a model on GPUs, which DistributedDataParallel sends, use nccl.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wildctc.child_processes import end_with_parent
from wildctc.errors import WildCTCError
from wildctc.peers import Peers
from wildctc.torchrun import log_level, place

_T = TypeVar("_T")
# How long an exchange may wait for a process that is alive. Where it may take longer, a barrier comes first, which has
# no limit. Peers notice a process that was killed or stopped within about a minute.
EXCHANGE_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class Processes:
    """This process among others. All processes must call each method, except `share`.

    Attributes:
        rank: The number of this process, from 0.
        size: The number of processes; 1 without torchrun.
        peers: What watches the other processes; None if there are none.

    >>> Processes().sum([1.0, 2.5])
    [1.0, 2.5]
    >>> Processes(rank=1, size=3).share("abcdefgh")
    'beh'
    """

    rank: int = 0
    size: int = 1
    peers: Peers | None = field(default=None, repr=False, compare=False)

    @property
    def first(self) -> bool:
        """Whether this is the process that logs and writes."""
        return self.rank == 0

    def share(self, items: Sequence[_T]) -> Sequence[_T]:
        """Take this process's part of items that all processes have.

        Args:
            items: The same in every process.

        Returns:
            Every `size`-th item, from `rank` on.
        """
        return items[self.rank :: self.size]

    def barrier(self) -> None:
        """Wait until all processes have called this, without a time limit."""
        if self.peers is not None:
            self.peers.barrier()

    def _begin(self) -> None:
        if self.peers is not None:
            self.peers.exchanges += 1

    def sum(self, values: list[float]) -> list[float]:
        """Add up values over all processes, in float64.

        Args:
            values: As many in every process.

        Returns:
            The sum of each, with the same bits in every process.
        """
        if self.size == 1:
            return values
        self._begin()
        mine = torch.tensor(values, dtype=torch.float64)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine)  # added here in the order of ranks, because all_reduce guarantees no order
        return [sum(column) for column in zip(*(part.tolist() for part in parts), strict=True)]

    def gather(self, value: _T) -> list[_T]:
        """Collect a value from every process.

        Args:
            value: Of this process; it is pickled.

        Returns:
            The values of all processes, by rank.
        """
        found: list[_T] = [value] * self.size
        if self.size > 1:
            self._begin()
            dist.all_gather_object(found, value)
        return found

    def tell(self, value: _T) -> _T:
        """Send the first process's value to all, for decisions that only one process may make.

        Args:
            value: In the first process what is sent; it is pickled. Others ignore theirs.

        Returns:
            The value of the first process.
        """
        found = [value]
        if self.size > 1:
            self._begin()
            dist.broadcast_object_list(found)
        return found[0]


ALONE = Processes()


@contextmanager
def process_group() -> Iterator[Processes]:
    """Join the processes that torchrun started, and leave them at the end.

    An exception in one process ends all of them. If several fail, for the same reason or because the first one is gone,
    one process raises its error and the others exit silently.

    Yields:
        This process among the others; alone without torchrun.

    >>> with process_group() as processes:
    ...     processes.rank, processes.size
    (0, 1)
    """
    rank, size = place()
    if size == 1:
        yield ALONE
        return
    end_with_parent(os.getppid())  # if torchrun is killed, it cannot end its processes
    if torch.cuda.is_available():
        _take_gpu()
    peers = Peers(rank, size)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, store=peers.meet(), rank=rank, world_size=size, timeout=EXCHANGE_TIMEOUT)
        logging.getLogger("wildctc").setLevel(log_level())
        yield Processes(rank, size, peers)
        peers.leave()
    except BaseException as error:
        why = peers.why(error) if _is_exchange(error) else ""
        peers.stop()
        if not peers.first_to_fail():
            raise SystemExit(2) from None
        if why:
            raise WildCTCError(why) from None
        raise
    dist.destroy_process_group()


def in_parallel(model: nn.Module) -> DistributedDataParallel:
    """Average the gradients of a model over the processes in each backward pass.

    Args:
        model: The same in every process.

    Returns:
        The wrapped model.
    """
    # gradients of depthwise convolutions are copied once more, which takes no measurable time
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides", UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # older releases of torch lack the successor of this option
        # buffers are not sent before each batch: they do not change, except those of `average_statistics`
        return DistributedDataParallel(model, broadcast_buffers=False)


def average_statistics(model: nn.Module, processes: Processes) -> None:
    """Average the running statistics of batch norm, which each process has updated with its own batches.

    Args:
        model: The model; changed in place.
        processes: All of them must call this.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    buffers = [b for layer in layers for b in (layer.running_mean, layer.running_var) if b is not None]
    if processes.size == 1 or not buffers:
        return
    total = torch.tensor(processes.sum(torch.cat(buffers).tolist()), dtype=torch.float64)
    for buffer, values in zip(buffers, (total / processes.size).split([len(b) for b in buffers]), strict=True):
        buffer.copy_(values)


def settle_before_fork() -> None:
    """Let the threads of the process group, if there is one, finish their work before a fork.

    A thread that ends a collective frees tensors, and for that becomes a Python thread, under a lock of the
    interpreter. A process that is forked at that moment inherits the locked lock and hangs in os.fork (CPython 3.11;
    seen once, on a busy machine). There is no event to wait for, but a short sleep, which releases the GIL, is enough.
    """
    if dist.is_available() and dist.is_initialized():
        time.sleep(0.05)


def _take_gpu() -> None:
    here, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if here > gpus:
        raise WildCTCError(
            f"more processes ({here}) than GPUs ({gpus}): start one for each, --nproc-per-node {gpus}, or set "
            "CUDA_VISIBLE_DEVICES to nothing for the CPU"
        )
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # so that "cuda" means this one


def _is_exchange(error: BaseException) -> bool:
    """Whether an exchange failed, which is how a process notices that another was killed."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
