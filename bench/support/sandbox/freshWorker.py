"""A worker built like Code Judge's: for every call a temporary directory and a fresh interpreter in a new session.

in   JSON lines {id, code, stdin, timeoutMs, memoryBytes} on stdin      out  JSON lines {id, exitCode, timedOut,
wallMs, stdout, stderr}
The limits (alarm, CPU, address space, no core dump) are set by lines before the code, in the same process, as in Code
Judge (0xWJ/code-judge, app/libs/executors); output is captured by pipes; afterwards the session's process group is
killed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

LIMITS = """import resource, signal
signal.alarm({seconds})
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, resource.getrlimit(resource.RLIMIT_CPU)[1]))
resource.setrlimit(resource.RLIMIT_AS, ({memory}, resource.getrlimit(resource.RLIMIT_AS)[1]))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


def run(call):
    limits = LIMITS.format(seconds=max(1, round(call["timeoutMs"] / 1000)), memory=call["memoryBytes"])
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "source.py")
        with open(path, "w") as file:
            file.write(limits + call["code"])
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        started = time.perf_counter()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(
            [sys.executable, path], cwd=directory, env=environment, start_new_session=True, **pipes
        ) as process:
            stdout, stderr = process.communicate(call["stdin"].encode())
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wall = time.perf_counter() - started
    return {
        "id": call["id"],
        "exitCode": process.returncode,
        "timedOut": process.returncode in (-signal.SIGALRM, -signal.SIGXCPU),
        "wallMs": wall * 1000,
        "stdout": stdout.decode("utf-8", "replace"),
        "stderr": stderr.decode("utf-8", "replace"),
    }


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
