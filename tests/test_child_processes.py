"""A process that another started ends with it, also when that is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

PARENT = """
import os, subprocess, sys, time
from wildctc import child_processes as children
code = [
    "import sys, time",
    "from wildctc import child_processes as children",
    "sys.platform = {platform!r}",
    "children.end_with_parent()",
    "print('ready', flush=True)",
    "time.sleep(300)",
]
child = subprocess.Popen([sys.executable, "-c", "\\n".join(code)],
                         env=children.environment({{"A": "b"}}), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(300)
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["linux", "another"])
def test_child_of_a_killed_process_ends(platform):
    command = [sys.executable, "-c", PARENT.format(platform=platform)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    alive = is_running(child)
    if alive:
        os.kill(child, signal.SIGKILL)
    assert not alive
