"""Generates the Python code for the contract in protos/ into libs/, or compares it with the code that is there.

    python tools/generate_protos.py            write the generated code, and remove code that has no proto any more
    python tools/generate_protos.py --check    write nothing; exit 1 and name every file that differs

The same protos give the same bytes: files go to protoc in sorted order and the plug-ins are pinned in pyproject.toml.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
OUTPUT = ROOT / "libs"
PACKAGE = Path("tradewind/api")

_SERVICE = re.compile(r"^service\s", re.MULTILINE)
_GENERATED = "*_pb2*.py*"


def generate(output: Path) -> None:
    """Write the code of every proto below `output`. Raises CalledProcessError when protoc refuses one."""
    protos = sorted((PROTOS / PACKAGE).rglob("*.proto"))
    with_service = [proto for proto in protos if _SERVICE.search(proto.read_text(encoding="utf-8"))]
    _protoc(protos, f"--python_out={output}", f"--mypy_out=quiet:{output}")
    # A proto without a service would only get an empty *_pb2_grpc module.
    _protoc(with_service, f"--grpc_python_out={output}", f"--mypy_grpc_out=quiet:{output}")


def differences(expected: Path, actual: Path) -> list[str]:
    """Return every generated file that is missing, stale or different, relative to libs/."""
    wanted, present = _generated(expected), _generated(actual)
    faults = [f"missing: {path}" for path in sorted(wanted - present)]
    faults += [f"no proto stands behind it: {path}" for path in sorted(present - wanted)]
    faults += [
        f"differs: {path}"
        for path in sorted(wanted & present)
        if not filecmp.cmp(expected / path, actual / path, shallow=False)
    ]
    return faults


def write(expected: Path, actual: Path) -> list[str]:
    """Make `actual` equal to `expected` and return what changed; correct files keep their time."""
    changed = differences(expected, actual)
    for path in _generated(actual) - _generated(expected):
        (actual / path).unlink()
    for path in _generated(expected):
        if not (actual / path).exists() or not filecmp.cmp(expected / path, actual / path, shallow=False):
            (actual / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(expected / path, actual / path)
    return changed


def _generated(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in (root / PACKAGE).rglob(_GENERATED) if "__pycache__" not in path.parts}


def _protoc(protos: list[Path], *options: str) -> None:
    if not protos:
        return
    # The plug-ins are beside the interpreter, in a folder that need not be on PATH.
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = [f"--plugin={name}={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTOS}", *plugins, *options]
    subprocess.run([*command, *(str(proto.relative_to(PROTOS)) for proto in protos)], check=True)


def main() -> int:
    """Run the tool; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a file is not up to date")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        expected = Path(folder)
        generate(expected)
        changed = differences(expected, OUTPUT) if check else write(expected, OUTPUT)
    for line in changed:
        print(f"libs: {line}")
    if check and changed:
        print("The generated code is not what protos/ gives: run `make protos` and commit what it changed.")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
