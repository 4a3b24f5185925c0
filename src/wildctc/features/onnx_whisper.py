"""Whisper's encoder in ONNX Runtime, as it is exported for the web: log-mel spectrogram in, features out.

The export adds a table of 1500 positions and so takes 30 s of sound, most of it padding. The model that is run here
adds only as many positions as the sound has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.log_mel import POSITION_RATE, SAMPLING_RATE, LogMel, count_positions, pieces
from wildctc.features.onnx_file import OnnxFile

_MELS = (80, 128)  # of the models that there are


class OnnxWhisperFrontEnd:
    """A frozen Whisper encoder in ONNX Runtime, without the padding to 30 s; longer sound is heard in pieces.

    Attributes:
        name: The file's name with its digest.
        digest: Of the file.
        path: The file.
        shape: (dim,), of a frame.
        dim: Numbers in a frame.
        sampling_rate: Of the wave, 16000.
        frame_rate: Frames a second, 50.
    """

    sampling_rate = SAMPLING_RATE
    frame_rate = POSITION_RATE

    def __init__(self, model: str | Path, threads: int = 1) -> None:
        """Open the model.

        Args:
            model: A .onnx file that takes (1, mels, 3000), as `encoder_model.onnx` or `encoder_model_quantized.onnx`.
            threads: Of ONNX Runtime; with another number the last bits may differ.
        """
        self.path = Path(model)
        self._file = OnnxFile(self.path, threads, edit=cut_positions)
        self.digest = self._file.digest
        self.name = f"{self.path.stem}-{self.digest}"
        self._log_mel, self.dim = self._find_size()
        self.shape = (self.dim,)

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames, one for every 320 samples.
        """
        return count_positions(samples)

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Compute features.

        Args:
            wave: (samples,) float32 at 16 kHz.

        Returns:
            (frames, dim) float32.
        """
        found = [self._run(self._log_mel, piece) for piece in pieces(wave)]
        return np.concatenate(found) if found else np.empty((0, self.dim), np.float32)

    def _find_size(self) -> tuple[LogMel, int]:
        """What prepares a wave, and the numbers in a frame. Most files do not say how many mels they take."""
        given = self._file.inputs()[0].shape[1]
        refused: WildCTCError | None = None
        for mels in (given,) if isinstance(given, int) else _MELS:
            log_mel = LogMel(mels)
            try:
                return log_mel, self._run(log_mel, np.zeros(SAMPLING_RATE, np.float32)).shape[1]
            except WildCTCError as error:
                refused = refused or error
        raise WildCTCError(f"{refused}; an export whose time axis is dynamic is needed")

    def _run(self, log_mel: LogMel, wave: np.ndarray) -> np.ndarray:
        found = self._file.run({self._file.inputs()[0].name: log_mel(wave).numpy()[None]}, f"{len(wave)} samples")
        if len(found) != -(-len(wave) * POSITION_RATE // SAMPLING_RATE):
            raise WildCTCError(f"front end {self.path}: {len(found)} frames for {len(wave)} samples, not 50 a second")
        return found


def takes_log_mel(path: Path) -> bool:
    """Find out whether a model takes a log-mel spectrogram, as Whisper does.

    Args:
        path: A .onnx or .ort file.

    Returns:
        Whether its one input has three axes; the wave has two.
    """
    inputs = OnnxFile(path).inputs()
    return len(inputs) == 1 and len(inputs[0].shape) == 3


def cut_positions(path: Path) -> bytes:
    """Change an encoder so that it takes sound of any length up to its positions.

    Only the first positions of the table are added, as many as the sound has. Outputs other than the first are dropped.

    Args:
        path: A .onnx file.

    Returns:
        The changed model, serialised.
    """
    onnx = _onnx()
    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf's own classes among others
        raise WildCTCError(f"front end {path} cannot be changed to take short sound: {error}") from None
    graph = model.graph
    tables = {table.name: len(table.dims) - 2 for table in graph.initializer if _is_table(table.dims)}
    nodes = list(graph.node)
    place = next((i for i, node in enumerate(nodes) if node.op_type == "Add" and tables.keys() & set(node.input)), None)
    if place is None:
        raise WildCTCError(
            f"front end {path} takes a spectrogram but adds no table of positions to it, as Whisper's encoder does: "
            "give encoder_model.onnx or encoder_model_quantized.onnx of an export for the web"
        )
    add = nodes[place]
    which = next(i for i, name in enumerate(add.input) if name in tables)
    nodes[place:place] = _slice_nodes(onnx, add.input[which], tables[add.input[which]], add.input[1 - which])
    add.input[which] = _CUT
    del graph.node[:], graph.value_info[:], graph.output[1:]  # value_info: shapes that no longer hold
    graph.node.extend(nodes)
    graph.initializer.extend(onnx.helper.make_tensor(f"{_CUT}_{i}", onnx.TensorProto.INT64, [1], [i]) for i in range(3))
    graph.input[0].type.tensor_type.shape.dim[2].dim_param = "frames"
    graph.output[0].type.tensor_type.ClearField("shape")
    content: bytes = model.SerializeToString()
    return content


_CUT = "wildctc_cut_positions"


def _is_table(dims: Any) -> bool:
    """Whether an array can be a table of positions: (positions, dim) or (1, positions, dim)."""
    return len(dims) in (2, 3) and dims[-2] > 1 and (len(dims) == 2 or dims[0] == 1)


def _slice_nodes(onnx: Any, table: str, axis: int, sound: str) -> list[Any]:
    """Nodes that compute _CUT: as many rows of a table as `sound`, (1, positions, dim), has positions."""
    make, zero, one, two = onnx.helper.make_node, *(f"{_CUT}_{i}" for i in range(3))
    return [
        make("Shape", [sound], [f"{_CUT}_shape"]),
        make("Slice", [f"{_CUT}_shape", one, two], [f"{_CUT}_length"]),
        make("Slice", [table, zero, f"{_CUT}_length", one if axis else zero], [_CUT]),
    ]


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise MissingExtra("onnx", "whisper") from None
    return onnx
