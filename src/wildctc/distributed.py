"""This process among those that `torchrun` started: their sums, their order, and one message for one mistake.

Without torchrun there is one process and nothing here does anything. What goes between processes goes over gloo, on
the CPU; only the gradients of a model on GPUs, which DistributedDataParallel sends, go over nccl.
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

T = TypeVar("T")
SET_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# How long an exchange may wait for a process that lives. Where it may take longer there is a barrier before, which has
# no limit. A process that is gone or stopped is noticed by its peers in about a minute.
PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class Processes:
    """This process, `rank`, among `size`; alone it is rank 0 of 1. All but `share` must be called by all of them.

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

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process's part of items that all processes have: every `size`-th."""
        return items[self.rank :: self.size]

    def barrier(self) -> None:
        """Wait until all processes have come here, however long one of them takes."""
        if self.peers is not None:
            self.peers.barrier()

    def _begin(self) -> None:
        if self.peers is not None:
            self.peers.exchanges += 1

    def sum(self, values: list[float]) -> list[float]:
        """Each value summed over all processes, in float64; the same bits in every process."""
        if self.size == 1:
            return values
        self._begin()
        mine = torch.tensor(values, dtype=torch.float64)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine)  # added up here, in the order of the ranks: a reduction promises no order
        return [sum(column) for column in zip(*(part.tolist() for part in parts), strict=True)]

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank. They are pickled."""
        found: list[T] = [value] * self.size
        if self.size > 1:
            self._begin()
            dist.all_gather_object(found, value)
        return found

    def tell(self, value: T) -> T:
        """The first process's value, in every process: for what only one may decide. It is pickled."""
        found = [value]
        if self.size > 1:
            self._begin()
            dist.broadcast_object_list(found)
        return found[0]


ALONE = Processes()


@contextmanager
def process_group() -> Iterator[Processes]:
    """Join the processes that torchrun started, and leave them at the end; without torchrun: alone.

    An exception in one process ends them all. Of several that fail, whether for the same reason or because the first to
    fail is gone, one raises what it has to say, and the others exit in silence.

    >>> with process_group() as processes:
    ...     processes.rank, processes.size
    (0, 1)
    """
    rank, size = _place()
    if size == 1:
        yield ALONE
        return
    end_with_parent(os.getppid())  # torchrun that is killed cannot end its processes
    if torch.cuda.is_available():
        _take_gpu()
    peers = Peers(rank, size)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, store=peers.meet(), rank=rank, world_size=size, timeout=PATIENCE)
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
    """The model, whose gradients are averaged over the processes in each backward pass."""
    # Gradients of depthwise convolutions are copied once more: nothing that anybody could measure, or should read of.
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides", UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the successor of this option is not in older releases of torch
        # No buffers are sent before each batch: they stay the same, but for those of `average_statistics`.
        return DistributedDataParallel(model, broadcast_buffers=False)


def average_statistics(model: nn.Module, processes: Processes) -> None:
    """Average the running statistics of batch norm, to which each process has added its own batches."""
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    buffers = [b for layer in layers for b in (layer.running_mean, layer.running_var) if b is not None]
    if processes.size == 1 or not buffers:
        return
    total = torch.tensor(processes.sum(torch.cat(buffers).tolist()), dtype=torch.float64)
    for buffer, values in zip(buffers, (total / processes.size).split([len(b) for b in buffers]), strict=True):
        buffer.copy_(values)


def is_first() -> bool:
    """Whether this is the process that shows progress and prints: alone, or torchrun's first."""
    return _place()[0] == 0


def log_level() -> int:
    """The first process says all. Others are silent until they have joined: what they would say, the first says too.

    After that they say what ended them, if they are the first to end.
    """
    if is_first():
        return logging.INFO
    return logging.ERROR if dist.is_available() and dist.is_initialized() else logging.CRITICAL


def settle_before_fork() -> None:
    """Let the threads of the process group finish what they are at, if there is one.

    One that ends a collective frees tensors and for that becomes a Python thread, under a lock of the interpreter. A
    process forked at that moment inherits the lock taken and hangs in os.fork for ever (CPython 3.11; seen once, on a
    busy machine). There is nothing to wait on, but a moment without the interpreter's other lock is enough.
    """
    if dist.is_available() and dist.is_initialized():
        time.sleep(0.05)


def _place() -> tuple[int, int]:
    """Rank and number of processes; a variable named RANK alone does not mean torchrun."""
    if not all(os.environ.get(name) for name in SET_BY_TORCHRUN):
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _take_gpu() -> None:
    here, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if here > gpus:
        raise WildCTCError(
            f"more processes ({here}) than GPUs ({gpus}): start one for each, --nproc-per-node {gpus}, or set "
            "CUDA_VISIBLE_DEVICES to nothing for the CPU"
        )
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # so that "cuda" means this one


def _is_exchange(error: BaseException) -> bool:
    """Whether an exchange failed: a process that was killed cannot say so, and the others notice it here."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
