"""Handle by which the keeper acts inside a running environment: forks commands into it, watches it and kills commands.

in   the first process's pid and pidfd, descriptors of cgroups and /proc, the seccomp filter
out  forked processes; whether the environment is ending; kills
Invariant: all descriptors are opened before the environment's first command, so no command can swap what they name. A
process that is forked into the environment runs no signal handler of the keeper, whatever signals it gets from inside.
"""

import errno
import os
import select
import signal

import enter
import kernel

PF_EXITING = 4  # flag of a task in /proc/PID/stat


class Inside:
    """own_pids: descriptor of the caller's PID namespace, to which `fork` returns; None if the caller's later children
    may be in the environment's.
    """

    def __init__(self, pid, pidfd, cgroups, host_proc, install_filter, user_namespace, own_pids):
        self.pid, self.pidfd, self.cgroups, self.host_proc = pid, pidfd, cgroups, host_proc
        self.install_filter, self.user_namespace, self.own_pids = install_filter, user_namespace, own_pids

    def is_ending(self):
        """Returns True if the environment's first process is dead or dying: the others die before it is reported dead."""
        if select.select([self.pidfd], [], [], 0)[0]:
            return True
        try:
            fd = os.open(f"{self.pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.host_proc)
            with open(fd) as file:
                return bool(int(file.read().rpartition(")")[2].split()[6]) & PF_EXITING)
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.ESRCH)

    def fork(self):
        """Forks into the environment's PID namespace. Signals are blocked in the child, which processes inside can signal
        at once: it must reset the keeper's handlers before it lets signals in.
        """
        child = None
        kernel.setns(self.pidfd, kernel.NEWPID)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, enter.HANDLED)
        try:
            child = os.fork()
            return child
        finally:
            if child != 0:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                # The caller's next children are outside the environment again.
                if self.own_pids is not None:
                    kernel.setns(self.own_pids, kernel.NEWPID)

    def kill_tree(self, child):
        """Kills the command and its descendants, in up to 20 rounds since they may fork meanwhile; then its process
        group.
        """
        for _ in range(20):
            found = self.descendants(child)
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if len(found) <= 1:
                break
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def descendants(self, pid):
        found = [pid]
        for one in found:
            try:
                fd = os.open(f"{one}/task/{one}/children", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.host_proc)
                with open(fd) as file:
                    found += [int(child) for child in file.read().split()]
            except OSError:
                continue
        return found
