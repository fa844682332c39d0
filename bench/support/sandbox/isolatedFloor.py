"""Starts the benchmark program isolatedFloor (isolatedFloor.c) where a zygote (the sandbox's warm interpreter) would
run: enters the zygote's namespaces and root, as zygote.py does, then replaces itself with the program (execve).

argv: the settings as JSON: core (CPU to run on); floor (path of the compiled program); seconds, small_kib, huge_kib and
mappings, the program's arguments; and what sandbox/zygote/confine.py needs (base, readable, uid).
"""

import json
import os
import sys

ZYGOTE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../sandbox/zygote")
sys.path.insert(0, ZYGOTE)

import confine  # noqa: E402
import filter as filters  # noqa: E402


def main():
    settings = json.loads(sys.argv[1])
    os.setsid()
    os.sched_setaffinity(0, {settings["core"]})
    floor = os.open(settings["floor"], os.O_RDONLY)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    own = os.pidfd_open(os.getpid())
    rules = os.memfd_create("filter")
    os.write(rules, filters.build().code)
    for fd in (proc, own, rules):
        os.set_inheritable(fd, True)
    user = confine.enter(settings, proc)
    confine.drop(user)
    numbers = [settings[name] for name in ("seconds", "small_kib", "huge_kib", "mappings")]
    uid_map = f"{confine.INSIDE} {user} 1"
    os.execve(floor, ["isolatedFloor", *map(str, numbers), str(proc), str(own), str(rules), uid_map], {})


main()
