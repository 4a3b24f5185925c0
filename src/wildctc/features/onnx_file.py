"""A model in ONNX Runtime, opened in each process that uses it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from wildctc.errors import MissingExtra, WildCTCError

_MOST_THREADS = 256


class OnnxFile:
    """A file .onnx or .ort, whose first output is (1, frames, dim).

    Attributes:
        path: The file.
        digest: Of its content.
    """

    def __init__(self, path: Path, threads: int = 1, edit: Callable[[Path], bytes] | None = None) -> None:
        """Read the file for its digest; it is opened when it is first used.

        Args:
            path: The file.
            threads: Of ONNX Runtime; with another number the last bits of the output may differ.
            edit: path → the model to run in place of the file, serialised.
        """
        if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= _MOST_THREADS:
            raise WildCTCError(f"front end: threads must be from 1 to {_MOST_THREADS}, got {str(threads)[:40]}")
        self.path, self._threads, self._edit = path, threads, edit
        try:
            self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        except OSError as error:
            raise WildCTCError(f"cannot read the front end {path}: {error.strerror}") from None
        self._opened: tuple[int, Any] | None = None

    def inputs(self) -> list[Any]:
        """List the inputs of the model.

        Returns:
            For each an object with `name`, `shape` and `type`.
        """
        found: list[Any] = self._session().get_inputs()
        return found

    def run(self, feed: dict[str, np.ndarray], what: str) -> np.ndarray:
        """Run the model.

        Args:
            feed: An array for each input, by name.
            what: What they are, for the message if the model refuses them.

        Returns:
            (frames, dim) float32, the first output.
        """
        session = self._session()
        try:
            output = session.run([session.get_outputs()[0].name], feed)[0]
        except Exception as error:  # onnxruntime's own classes, which derive from nothing narrower
            raise WildCTCError(f"front end {self.path}: does not take {what}: {error}") from None
        if output.ndim != 3 or output.shape[0] != 1:
            raise WildCTCError(f"front end {self.path}: its output is {output.shape}, not (1, frames, dim)")
        return np.asarray(output[0], np.float32)

    def _session(self) -> Any:
        # Opened in each process: a session does not survive a fork, nor can it be pickled.
        if self._opened is None or self._opened[0] != os.getpid():
            onnxruntime = _onnxruntime()
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
            options.log_severity_level = 4
            model = self._edit(self.path) if self._edit else self.path
            try:
                session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # as above
                raise WildCTCError(f"front end {self.path} is not an ONNX model: {error}") from None
            self._opened = os.getpid(), session
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "moonshine") from None
    return onnxruntime
