"""A process that speaks: requests on standard input, samples on standard output. Started as a script by `synthetic`.

espeak-ng's noise goes on from one utterance to the next, so the same sentence never sounds the same twice. Here each
utterance is spoken by a fork of a process that has not spoken yet. Nothing of the package is imported: a small process
starts and forks in a millisecond.
"""

import ctypes
import json
import os
import struct
import sys
from typing import Any

SYNCHRONOUS, CHARACTERS, UTF8, RATE, PITCH = 2, 1, 1, 1, 3  # of espeak-ng's speak_lib.h
LENGTH = struct.Struct("<q")
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def main(library: str, data: str) -> None:
    """Answer each line [voice, rate, pitch, text] with a length in bytes and as many bytes of 16-bit samples."""
    os.chdir(os.path.dirname(data))  # a short path: espeak-ng refuses one of more than 160 bytes
    espeak = ctypes.CDLL(library)
    sampling_rate = espeak.espeak_Initialize(SYNCHRONOUS, 0, b".", 0)
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

    @CALLBACK
    def collect(samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            parts.append(ctypes.string_at(samples, 2 * count))
        return 0

    espeak.espeak_SetSynthCallback(collect)
    espeak.espeak_ng_SetRandSeed(ctypes.c_long(1))  # which it has seeded with the time
    if espeak.espeak_SetVoiceByName(voice.encode()) != 0:
        os._exit(1)
    espeak.espeak_SetParameter(RATE, rate, 0)
    espeak.espeak_SetParameter(PITCH, pitch, 0)
    said = text.encode().replace(b"\0", b" ") + b"\0"
    espeak.espeak_Synth(said, ctypes.c_size_t(len(said)), 0, CHARACTERS, 0, UTF8, None, None)
    answer = LENGTH.pack(sum(map(len, parts))) + b"".join(parts)
    while answer:
        answer = answer[os.write(1, answer) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
