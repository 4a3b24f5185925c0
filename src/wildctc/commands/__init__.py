"""The commands, a file each: what a command's options are, and the call that it stands for.

Imports that take time are inside the functions, so that `wildctc --help` is quick.
"""

from wildctc.commands import (
    apply_fixes,
    audit,
    compare,
    corrupt,
    decode,
    prepare,
    probe,
    score,
    train,
    transcribe,
)

# In the order of `wildctc --help`. Each has `register(add)`.
COMMANDS = (prepare, train, decode, score, compare, transcribe, probe, audit, apply_fixes, corrupt)
