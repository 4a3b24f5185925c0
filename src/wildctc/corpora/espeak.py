"""A script that `synthetic` starts: it reads requests from standard input and writes samples to standard output.

espeak-ng does not reset its random noise between utterances, so a sentence would sound different each time. Here each
utterance is spoken by a fork of a process that has not spoken yet. Nothing of the package is imported, so that the
process is small, and forks in a millisecond.
"""

import ctypes
import json
import os
import struct
import sys
from typing import Any

_SYNCHRONOUS, _CHARACTERS, _UTF8, _RATE, _PITCH = 2, 1, 1, 1, 3  # of espeak-ng's speak_lib.h
LENGTH = struct.Struct("<q")
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def _main(library: str, data: str) -> None:
    """Answer each line [voice, rate, pitch, text] with a length in bytes and as many bytes of 16-bit samples.

    The first answer is the sampling rate.

    Args:
        library: The file of espeak-ng's shared library.
        data: The folder of its voices.
    """
    os.chdir(os.path.dirname(data))  # a short path: espeak-ng refuses one of more than 160 bytes
    espeak = ctypes.CDLL(library)
    sampling_rate = espeak.espeak_Initialize(_SYNCHRONOUS, 0, b".", 0)
    os.write(1, LENGTH.pack(sampling_rate))
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            _speak(espeak, *json.loads(line))
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(1)


def _speak(espeak: Any, voice: str, rate: int, pitch: int, text: str) -> None:
    parts: list[bytes] = []

    @_CALLBACK
    def collect(samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            parts.append(ctypes.string_at(samples, 2 * count))
        return 0

    espeak.espeak_SetSynthCallback(collect)
    espeak.espeak_ng_SetRandSeed(ctypes.c_long(1))  # espeak-ng has seeded it with the time
    if espeak.espeak_SetVoiceByName(voice.encode()) != 0:
        os._exit(1)
    espeak.espeak_SetParameter(_RATE, rate, 0)
    espeak.espeak_SetParameter(_PITCH, pitch, 0)
    said = text.encode().replace(b"\0", b" ") + b"\0"
    espeak.espeak_Synth(said, ctypes.c_size_t(len(said)), 0, _CHARACTERS, 0, _UTF8, None, None)
    answer = LENGTH.pack(sum(map(len, parts))) + b"".join(parts)
    while answer:
        answer = answer[os.write(1, answer) :]


if __name__ == "__main__":
    _main(*sys.argv[1:])
