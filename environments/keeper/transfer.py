"""Copies files into and out of an environment.

in   a request, and for an upload the bytes of a file or a tar archive
out  for a download, the bytes of a file or a tar archive
Invariant: paths are looked up with the environment's files as the root directory, so no symbolic link leads outside. A
download holds only files, directories and links: no devices, pipes or sockets.
"""

# Imported before the chroot: tarfile, grp and pwd load these on first use, and they must not come from the environment.
import bz2, grp, lzma, pwd, zlib  # noqa: E401, F401
import os
import stat
import tarfile

READ = 1 << 20


def handle(connection, request, root, answer):
    os.chroot(root)
    os.chdir("/")
    os.umask(0o022)
    path = os.fsencode(request["path"])
    if request["op"] == "get":
        send(connection, path, answer)
        return
    with connection.makefile("rb", buffering=READ) as stream:
        if request["op"] == "putFile":
            receive_file(stream, path, request)
        else:
            receive_tree(stream, path)
    answer(connection, {"done": True})


def receive_file(stream, path, request):
    """Writes a file under another name and renames it, so that nobody sees half of it and no link is followed."""
    parent = os.path.dirname(path) or b"/"
    os.makedirs(parent, exist_ok=True)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{request['path']} is a directory in the environment")
    beside = os.path.join(parent, b".upload-%d" % os.getpid())
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, request["mode"])
    try:
        with open(fd, "wb") as file:
            left = request["size"]
            while left > 0:
                data = stream.read(min(left, READ))
                if not data:
                    raise EOFError("the upload ended early")
                file.write(data)
                left -= len(data)
        os.chmod(beside, request["mode"])
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def receive_tree(stream, path):
    os.makedirs(path, exist_ok=True)
    with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            archive.extract(member, os.fsdecode(path), **FILTER)
    while stream.read(READ):
        pass


# The archive comes from this machine, and the root is the environment's: nothing needs to be filtered.
FILTER = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


def send(connection, path, answer):
    info = os.stat(path)
    if stat.S_ISREG(info.st_mode):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("the path is no longer a regular file")
        answer(connection, {"kind": "file", "size": info.st_size, "mode": stat.S_IMODE(info.st_mode)})
        with open(fd, "rb") as file:
            left = info.st_size
            while left > 0 and (data := file.read(min(left, READ))):
                connection.sendall(data)
                left -= len(data)
        return
    if not stat.S_ISDIR(info.st_mode):
        raise OSError("the path is neither a file nor a directory")
    answer(connection, {"kind": "directory"})
    with connection.makefile("wb", buffering=READ) as stream:
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape") as archive:
            archive.add(os.fsdecode(path), arcname=".", filter=plain)


def plain(member):
    return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None
