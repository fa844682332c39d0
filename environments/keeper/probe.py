"""Says what this machine lacks for the driver oci: makes what an environment needs, and removes it.

in   nothing        out  one line of JSON: {"missing": [reason with its cure, ...], "filter": whether libseccomp is there}
Invariant: no cgroup, mount or directory of its own is left.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cgroup  # noqa: E402
import kernel  # noqa: E402

LIMITS = {"cpus": 1, "memoryMb": 64, "processes": 16}


def lacking_limits():
    paths = cgroup.create(f"troupe-probe-{os.getpid()}", LIMITS)
    try:
        return cgroup.missing(paths, LIMITS)
    finally:
        cgroup.remove(paths)


def mount_overlay():
    """Mounts an overlay of empty directories, on a tmpfs, in a new mount namespace, and unmounts it."""
    kernel.unshare(kernel.NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    place = tempfile.mkdtemp()
    try:
        kernel.mount("probe", place, "tmpfs", kernel.MS_NODEV)
        try:
            for name in ("lower", "upper", "work", "merged"):
                os.mkdir(f"{place}/{name}")
            kernel.mount("overlay", f"{place}/merged", "overlay", kernel.MS_NODEV, f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work")
            kernel.unmount(f"{place}/merged")
        finally:
            kernel.unmount(place)
    finally:
        os.rmdir(place)


def main():
    missing = []
    try:
        if lacking := lacking_limits():
            missing.append(f"no writable cgroup can hold the limits {', '.join(lacking)}: {cgroup.CURE}")
    except OSError as error:
        missing.append(f"no cgroup can be made ({error}): {cgroup.CURE}")
    try:
        mount_overlay()
    except OSError as error:
        missing.append(f"no overlay can be mounted ({error}): the kernel needs overlayfs (modprobe overlay), and a container the right to mount")
    print(json.dumps({"missing": missing, "filter": kernel.load_filter() is not None}))


main()
