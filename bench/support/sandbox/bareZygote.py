"""The bare zygote: a warm interpreter that forks for each program, in a Python loop and without any isolation.

argv: SECONDS CORE MODULES PROGRAM, where MODULES is a comma-separated list to import first and PROGRAM's `{n}` is the
call's number. Prints the number of calls, the seconds that they took and the seconds of CPU time. Each call's output
comes through a pipe and is checked.
"""

import gc
import os
import sys
import time


def call(program, number):
    """Runs the program in a forked child; returns the child's output."""
    source = program.replace("{n}", str(number))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.close(read)
        os.close(write)
        exec(compile(source, "main.py", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    parts = []
    while part := os.read(read, 65536):
        parts.append(part)
    os.close(read)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"call {number} failed")
    return b"".join(parts)


def main():
    seconds, core, modules, program = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    os.sched_setaffinity(0, {core})
    for module in filter(None, modules.split(",")):
        __import__(module)
    call(program, 0)
    gc.freeze()
    count, started, used = 0, time.monotonic(), sum(os.times()[:4])
    while time.monotonic() - started < seconds:
        count += 1
        if str(count).encode() not in call(program, count):
            sys.exit(f"call {count} printed something else")
    print(count, time.monotonic() - started, sum(os.times()[:4]) - used)


main()
