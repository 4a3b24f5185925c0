"""The commands, one file each: the options of a command, and the call that it makes.

Each file has two functions. `register(add)` adds the command and its options: `add(name, run, text)` returns the
parser of the command. `run(options)` does the work; `options` is what the parser found. Imports that take time are
inside the functions, so that `wildctc --help` is quick.
"""

from wildctc.commands import (
    align,
    align_long,
    apply_fixes,
    audit,
    calibrate,
    clean,
    compare,
    convert,
    corrupt,
    decisions,
    decode,
    demo,
    disagree,
    exchange,
    export,
    graph,
    prepare,
    probe,
    rates,
    reproduce,
    score,
    segment,
    selftest,
    train,
    transcribe,
    tune,
    variants,
)

# In the order of `wildctc --help`.
COMMANDS = (
    prepare,
    convert,
    train,
    decode,
    tune,
    calibrate,
    score,
    compare,
    transcribe,
    align,
    align_long,
    segment,
    export,
    graph,
    probe,
    audit,
    decisions,
    apply_fixes,
    exchange,
    clean,
    disagree,
    rates,
    variants,
    corrupt,
    demo,
    reproduce,
    selftest,
)
