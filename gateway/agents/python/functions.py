"""Runs a recipe's agent function for many rollouts: imports its file once, and forks a process for each call.

argv: pid of the parent, bound on a call's address space in MiB (0: none), file, name of the function.
stdin: JSON lines {"id", "directory", "output", "env"}, and {"kill": id}. stdout: {"ready": true} once the file is
imported, {"id", "pid"} when a call begins, {"id", "code"} or {"id", "signal"} when its process has ended. A call gets
the task of TROUPE_TASK as a dict. A number that it returns becomes the session's reward.
"""

import ctypes
import importlib.util
import json
import os
import resource
import selectors
import signal
import sys
import traceback
import urllib.request

PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def load(path, name):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("agent", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def call(function, directory, output, env, parent, memory_mb):
    """In the forked process: calls the agent's function for one rollout, then ends the process. Never returns."""
    os.setsid()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if memory_mb > 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, fd in ((nothing, 0), (to, 1), (to, 2)):
        os.dup2(source, fd)
    os.closerange(3, 256)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    code = 1
    try:
        with open(env["TROUPE_TASK"], encoding="utf-8") as file:
            task = json.load(file)
        reward = function(task)
        if reward is not None:
            post_reward(float(reward))
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def post_reward(value):
    request = urllib.request.Request(
        os.environ["TROUPE_SESSION_URL"] + "/reward",
        data=json.dumps({"value": value}).encode(),
        headers={"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=600).close()


def main():
    starter, memory_mb = int(sys.argv[1]), int(sys.argv[2])
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:
        sys.exit(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the file prints while it is imported must not be read as an answer
    function = load(*sys.argv[3:5])
    ids = {}
    woken, wakes = os.pipe()
    for fd in (woken, wakes):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wait = selectors.DefaultSelector()
    wait.register(0, selectors.EVENT_READ)
    wait.register(woken, selectors.EVENT_READ)
    rest = b""
    print(json.dumps({"ready": True}), file=answers)
    while True:
        for key, _ in wait.select():
            data = os.read(key.fd, 65536)
            if key.fd == woken:
                continue
            if not data:
                for pid in ids:
                    os.killpg(pid, signal.SIGKILL)
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                if "kill" in asked:
                    for pid in [pid for pid, one in ids.items() if one == asked["kill"]]:
                        for target in (os.killpg, os.kill):  # its group exists once it has called setsid
                            try:
                                target(pid, signal.SIGKILL)
                            except ProcessLookupError:
                                pass
                    continue
                me = os.getpid()
                pid = os.fork()
                if pid == 0:
                    call(function, asked["directory"], asked["output"], asked["env"], me, memory_mb)
                ids[pid] = asked["id"]
                print(json.dumps({"id": asked["id"], "pid": pid}), file=answers)
        while ids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid in ids:
                code = os.waitstatus_to_exitcode(status)
                ended = {"signal": signal.Signals(-code).name} if code < 0 else {"code": code}
                print(json.dumps({"id": ids.pop(pid), **ended}), file=answers)


main()
