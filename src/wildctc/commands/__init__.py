"""The commands, a file each: what a command's options are, and the call that it stands for.

Imports that take time are inside the functions, so that `wildctc --help` is quick.
"""

from wildctc.commands import (
    align,
    apply_fixes,
    audit,
    compare,
    corrupt,
    decode,
    demo,
    disagree,
    graph,
    prepare,
    probe,
    reproduce,
    score,
    selftest,
    train,
    transcribe,
)

# In the order of `wildctc --help`. Each has `register(add)`.
COMMANDS = (
    prepare,
    train,
    decode,
    score,
    compare,
    transcribe,
    align,
    graph,
    probe,
    audit,
    apply_fixes,
    disagree,
    corrupt,
    demo,
    reproduce,
    selftest,
)
