"""Checks the Dockerfile where no image can be built: its statements are compared, and its install lines are run."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.house.project import ROOT

LINES = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8")).splitlines()
STEPS = [tuple(line.split(maxsplit=1)) for line in LINES if line and not line.startswith("#")]
BUILD, FINAL = ([at for at, step in enumerate(STEPS) if step[0] == "FROM"] + [len(STEPS)])[:2]
BUILT = STEPS[BUILD:FINAL]
LAST = STEPS[FINAL:]


def arguments_of(steps: list[tuple[str, ...]], instruction: str) -> list[str]:
    return [step[1] for step in steps if step[0] == instruction]


def test_final_stage_contains_no_build_tools() -> None:
    (base,) = arguments_of(LAST, "FROM")
    assert re.fullmatch(r"python:3\.\d+-slim", base)
    assert arguments_of(LAST, "COPY") == ["--from=build /opt/tradewind /opt/tradewind"]
    assert "pip uninstall" in arguments_of(LAST, "RUN")[0]
    assert not re.search(r"pip install|apt|gcc|make", " ".join(arguments_of(LAST, "RUN")))
    assert arguments_of(BUILT, "RUN")[-1].endswith("pip uninstall --yes --quiet pip")


def test_image_runs_as_an_unprivileged_user() -> None:
    assert arguments_of(LAST, "USER") == ["10001:10001"]
    assert LAST.index(("USER", "10001:10001")) > max(at for at, step in enumerate(LAST) if step[0] in ("RUN", "COPY"))
    assert arguments_of(LAST, "VOLUME") == ["/data"]


def test_image_declares_health_check_command_and_port() -> None:
    (health,) = arguments_of(LAST, "HEALTHCHECK")
    assert health.endswith('CMD ["python", "-m", "tradewind.server.probe"]')
    assert arguments_of(LAST, "CMD") == ['["tradewind", "up", "--host", "0.0.0.0", "--data", "/data"]']
    assert arguments_of(LAST, "EXPOSE") == ["7700"]


def test_dockerignore_admits_exactly_the_copied_files() -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"
    }
    copied = {name for line in arguments_of(BUILT, "COPY") for name in line.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_install_steps_work_in_a_fresh_environment(tmp_path: Path) -> None:
    """They need only the files that it copies; the dependencies are those of this environment, from `make setup`."""
    source, target = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    for line in arguments_of(BUILT, "COPY"):
        *names, where = line.split()
        for name in names:
            to = source / where if where == name else source
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, to)
    here = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for line in arguments_of(BUILT, "RUN"):
        command = line.replace("/opt/tradewind", str(target)).replace("python -m venv", f"{sys.executable} -m venv")
        command = command.replace("pip install", "pip install --quiet --no-deps")
        ran = subprocess.run(command, shell=True, cwd=source, env=here, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not list((target / "bin").glob("pip*"))
    command_line = [str(target / "bin" / "tradewind"), "--version"]
    ran = subprocess.run(
        command_line,
        cwd=tmp_path,
        env=here | {"PYTHONPATH": sysconfig.get_path("purelib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.startswith("tradewind "), ran.stderr
    shipped = {path.name for path in (target / "lib").glob("python*/site-packages/tradewind/*")}
    assert {"api", "cli", "client", "scheduler", "standalone", "worker"} <= shipped
