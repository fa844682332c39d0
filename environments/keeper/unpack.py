"""Unpacks the layers of an image, lowest first, into a directory.

in   argv: the directory, then tar archives, compressed or not
out  files; a Python traceback and exit code 1 if an archive is broken
Invariant: the directory is the root of this process while it unpacks, so that no link of a layer leads outside. What a
layer marks as deleted in the layers below it (`.wh.NAME`, `.wh..wh..opq`) is removed before the layer is unpacked.
"""

import os
import shutil
import sys
import tarfile

# These modules are loaded before the root changes, since tarfile looks for them in the file system.
import bz2, grp, gzip, lzma, pwd, zlib  # noqa: E401, F401

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
FILTER = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def unpack(file):
    with tarfile.open(fileobj=file, mode="r:*", encoding="utf-8", errors="surrogateescape") as archive:
        members = archive.getmembers()
        for member in members:
            directory, name = os.path.split(member.name)
            place = os.path.join("/", directory)
            if name == OPAQUE:
                for inner in os.listdir(place) if os.path.isdir(place) else []:
                    remove(os.path.join(place, inner))
            elif name.startswith(WHITEOUT):
                remove(os.path.join(place, name[len(WHITEOUT) :]))
        for member in members:
            name = os.path.basename(member.name)
            # Device nodes are not made: each environment gets its own /dev.
            if name.startswith(WHITEOUT) or member.isdev() and not member.isfifo():
                continue
            target = os.path.join("/", member.name)
            if not member.isdir() and os.path.lexists(target):
                remove(target)
            elif member.isdir() and os.path.lexists(target) and (os.path.islink(target) or not os.path.isdir(target)):
                os.unlink(target)
            member.uname = member.gname = ""
            archive.extract(member, "/", numeric_owner=True, **FILTER)


def main():
    directory, archives = sys.argv[1], [open(path, "rb") for path in sys.argv[2:]]
    os.umask(0)
    os.chroot(directory)
    os.chdir("/")
    for file in archives:
        unpack(file)


main()
