"""Limits an environment's disk space: its changes lie in a file system of limited size, on a loop device.

in   a size in MiB; the working directory is the environment's
out  mounts: `disk`, and `disk/upper` also at `upper`
Invariant: the mount is in the keeper's own mount namespace, and the device is freed with it (autoclear), also after
`kill -9`. The file behind it is sparse: it takes only the space that is used. It is removed with the directory.
"""

import os

import kernel

# No journal and no reserve: the file system never outlives its environment. One inode for each 8 KiB, since a small
# file system may hold many files.
OPTIONS = ("-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", "-i", "8192")


def limit(size_mb):
    """Mounts the file system; returns the overlay's upper and work directory in it."""
    with open("disk.img", "wb") as file:
        file.truncate(size_mb << 20)
    os.makedirs("disk", exist_ok=True)
    run("mkfs.ext4", *OPTIONS, "disk.img")
    run("mount", "-t", "ext4", "-o", "loop,nodev,noatime", "disk.img", "disk")
    for name in ("disk/upper", "disk/work"):
        os.makedirs(name, exist_ok=True)
    os.rmdir("disk/lost+found")
    # Snapshots read `upper`. An overlay wants both of its directories under one mount, so it takes those below `disk`.
    kernel.mount("disk/upper", "upper", None, kernel.MS_BIND)
    return "disk/upper", "disk/work"


def run(*command):
    # Imported only here: it brings `threading`, which makes each later fork of the process slower.
    import subprocess

    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, env={"PATH": path, "LC_ALL": "C"})
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stderr.decode(errors='replace').strip()}")
