"""The project as files: its root, what git tracks, the parts of the `tradewind` namespace."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE_ROOTS = (ROOT / "libs" / "tradewind", ROOT / "services" / "tradewind")


@cache
def project_files() -> list[Path]:
    """Return every file that is tracked or is to be, relative to the root, in order."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = {Path(name) for name in listed.split("\0") if name}
    return sorted(name for name in names if (ROOT / name).is_file())


@cache
def parts() -> dict[str, Path]:
    """Return each part that has code: its name `tradewind.<part>` and its folder."""
    folders = [folder for root in NAMESPACE_ROOTS for folder in root.iterdir()]
    return {f"tradewind.{folder.name}": folder for folder in sorted(folders) if any(folder.rglob("*.py"))}
