"""Snapshot of an environment's files: a layer for overlayfs, with a manifest whose digest is the layer's name.

in   the upper directory, the layer that the environment started from, the image
out  `layers/<digest>`, its manifest, contents in `objects/`; sockets are left out
Invariant: over the same image, equal digests mean equal files (name, kind, mode, owner, content); times are kept but do
not count. Regular files of equal content, mode, owner, time and capabilities share one file of `objects/`, up to the
file system's bound on hard links. Names are looked up relative to open directories, without following links: the
environment's processes may change the tree meanwhile.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
import sys

import tree

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
COPY = 1 << 20
KEPT_ATTRIBUTES = ("security.capability",)


def take(config, request, user_namespace):
    store = config["store"]
    image, below = config["lower"][-1], config["lower"][0] if len(config["lower"]) > 1 else None
    taken = Taken(store, request["name"], "user.overlay.opaque" if user_namespace else "trusted.overlay.opaque")
    upper = os.open("upper", DIRECTORY)
    lower = os.open(below, DIRECTORY) if below else None
    # Each level of directories takes two nested calls and two descriptors. The longest path needs fewer than this.
    sys.setrecursionlimit(20_000)
    try:
        taken.directory(upper, lower, taken.layer, "", image)
        os.utime(taken.layer, ns=(0, 0))
        return taken.finish()
    except BaseException as error:
        tree.remove(taken.layer)
        if isinstance(error, RecursionError) or isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.EMFILE):
            raise TooDeep("a directory of the environment is too deep to store: a path in the store has at most 4095 bytes") from error
        raise


class TooDeep(Exception):
    pass


class Taken:
    def __init__(self, store, name, opaque):
        self.store, self.opaque = store, opaque
        # The mark enters the digest: a layer whose directories are opaque only in a user namespace is another layer.
        self.mark = True if opaque.startswith("trusted.") else "user"
        self.layer = f"{store}/layers/.{name}"
        self.objects = f"{store}/objects"
        os.makedirs(self.layer, mode=0o755)
        os.makedirs(self.objects, exist_ok=True)
        self.entries, self.bytes, self.kept = [], 0, {}
        try:
            with open("hashes.json") as file:
                self.known = json.load(file)
        except (OSError, ValueError):
            self.known = {}

    def finish(self):
        lines = "\n".join(json.dumps(entry, sort_keys=True) for entry in sorted(self.entries, key=lambda entry: entry["path"]))
        digest = hashlib.sha256(lines.encode()).hexdigest()
        with open("hashes.new", "w") as file:
            file.write(json.dumps(self.kept))
        os.rename("hashes.new", "hashes.json")
        place = f"{self.store}/layers/{digest}"
        manifest = f"{self.layer}.manifest"
        with open(manifest, "w") as file:
            file.write(lines)
        os.rename(manifest, f"{place}.manifest")
        try:
            os.rename(self.layer, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            tree.remove(self.layer)  # The store has a layer of the same files already.
        return {"digest": digest, "files": len(self.entries), "bytes": self.bytes}

    def directory(self, upper, lower, target, path, image):
        """Stores one directory: what `upper` has, over what `lower` has. Either may be None.

        image: path of the same directory in the image; None if the image has none there, or it is hidden."""
        names = set(os.listdir(upper) if upper is not None else ()) | set(os.listdir(lower) if lower is not None else ())
        for name in sorted(names):
            inner, below = f"{path}/{name}", f"{image}/{name}" if image else None
            entry = lstat(upper, name)
            earlier = lstat(lower, name)
            fresh = entry is not None
            info = entry if fresh else earlier
            in_image = kind_of(below)
            if info is None:
                continue
            if is_whiteout(info):
                # A file that the image does not have need not be hidden.
                if in_image is not None:
                    os.mknod(f"{target}/{name}", stat.S_IFCHR, os.makedev(0, 0))
                    self.entries.append({"path": inner, "kind": "deleted"})
            elif stat.S_ISDIR(info.st_mode):
                self.subdirectory(upper if fresh else None, lower, name, f"{target}/{name}", inner, below, in_image, info)
            else:
                self.plain(upper if fresh else lower, name, info, f"{target}/{name}", inner, not fresh)

    def subdirectory(self, upper, lower, name, target, inner, below, in_image, info):
        above = os.open(name, DIRECTORY, dir_fd=upper) if upper is not None else None
        hides = above is not None and attribute(above, self.opaque) == b"y"
        earlier = lstat(lower, name)
        under = None
        if earlier is not None and not hides:
            if stat.S_ISDIR(earlier.st_mode):
                under = os.open(name, DIRECTORY, dir_fd=lower)
                hides = attribute(under, self.opaque) == b"y"
            else:
                hides = True
        # From here on: the directory is opaque, that is, it hides the image's directory of the same name, which exists.
        hides = hides and in_image == "directory"
        os.mkdir(target)
        self.directory(above, under, target, inner, None if hides or in_image != "directory" else below)
        if hides:
            os.setxattr(target, self.opaque, b"y")
        own(target, info)
        self.entries.append({"path": inner, "kind": "directory", **owner(info), **({"opaque": self.mark} if hides else {})})
        for fd in (above, under):
            if fd is not None:
                os.close(fd)

    def plain(self, parent, name, info, target, inner, stored):
        if stat.S_ISREG(info.st_mode):
            key, digest = self.content(parent, name, info, inner)
            self.bytes += info.st_size
            link(f"{self.objects}/{key}", target)
            self.entries.append({"path": inner, "kind": "file", **owner(info), "bytes": info.st_size, "sha256": digest})
        elif stat.S_ISLNK(info.st_mode):
            to = os.readlink(name, dir_fd=parent)
            os.symlink(to, target)
            os.chown(target, info.st_uid, info.st_gid, follow_symlinks=False)
            self.entries.append({"path": inner, "kind": "link", "to": to, "uid": info.st_uid, "gid": info.st_gid})
        elif stat.S_ISFIFO(info.st_mode):
            os.mkfifo(target)
            own(target, info)
            self.entries.append({"path": inner, "kind": "fifo", **owner(info)})
        # Sockets are left out: without the process that listens they are nothing.

    def content(self, parent, name, info, inner):
        """Stores a file in `objects`. Returns its key there (a digest of content, mode, owner, time and capabilities),
        and the digest of its content.
        """
        mark = [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]
        known = self.known.get(inner)
        if known and known[0] == mark and os.path.exists(f"{self.objects}/{known[1]}"):
            self.kept[inner] = known
            return known[1], known[2]
        fd = os.open(name, FILE, dir_fd=parent)
        beside = f"{self.layer}.object"
        sha = hashlib.sha256()
        with open(fd, "rb", buffering=0) as source, open(beside, "wb", buffering=0) as copy:
            while data := source.read(COPY):
                sha.update(data)
                copy.write(data)
            attributes = {name: value for name in KEPT_ATTRIBUTES if (value := attribute(source.fileno(), name)) is not None}
        own(beside, info)
        for attribute_name, value in attributes.items():
            os.setxattr(beside, attribute_name, value)
        digest = sha.hexdigest()
        meta = f"{digest} {info.st_mode} {info.st_uid} {info.st_gid} {info.st_mtime_ns} {attributes}"
        key = hashlib.sha256(meta.encode()).hexdigest()
        try:
            os.link(beside, f"{self.objects}/{key}")
        except FileExistsError:
            pass
        os.unlink(beside)
        self.kept[inner] = [mark, key, digest]
        return key, digest


def lstat(parent, name):
    if parent is None:
        return None
    try:
        return os.lstat(name) if parent is None else os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def kind_of(path):
    """Returns what the image has at a path: 'directory', 'other', or None. The image does not change."""
    if path is None:
        return None
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return "directory" if stat.S_ISDIR(mode) else "other"


is_whiteout = lambda info: stat.S_ISCHR(info.st_mode) and info.st_rdev == 0  # noqa: E731
owner = lambda info: {"mode": stat.S_IMODE(info.st_mode), "uid": info.st_uid, "gid": info.st_gid}  # noqa: E731


def own(path, info):
    os.chown(path, info.st_uid, info.st_gid)
    os.chmod(path, stat.S_IMODE(info.st_mode))
    os.utime(path, ns=(info.st_mtime_ns, info.st_mtime_ns))


def attribute(fd, name):
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None


def link(source, target):
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EMLINK:
            raise
        shutil.copy2(source, target)
        info = os.stat(source)
        own(target, info)

