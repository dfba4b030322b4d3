"""Random lives of the whole engine end as they must (`tests.system.lives.invariants`).

`make lives` goes on with other lives: LIVES_SECONDS is for how long (300 by default), LIVES_SEED the first one's seed.
"""

import itertools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import structlog

from tests.house.project import ROOT
from tests.system.lives.life import live

SEEDS = range(8)
DISTURBED = 4
"""The seed of a life in which much goes wrong."""
LASTS_S = float(os.environ.get("LIVES_SECONDS", "300"))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Do not log that nodes and calls fail: they are made to."""
    caplog.set_level(logging.CRITICAL)
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    try:
        yield
    finally:
        structlog.configure(**config)


@pytest.mark.parametrize("seed", SEEDS)
def test_life_leaves_nothing_behind(seed: int) -> None:
    check(seed)


def test_life_is_the_same_in_every_process() -> None:
    program = f"from tests.system.lives.life import live; print(live({DISTURBED}).log)"

    def lived(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    assert lived("1") == lived("2")


@pytest.mark.lives
@pytest.mark.timeout(LASTS_S + 600)
def test_many_lives_leave_nothing_behind() -> None:
    end = time.monotonic() + LASTS_S
    first = int(os.environ.get("LIVES_SEED") or time.time())
    for seed in itertools.count(first):
        print(f"LIVES_SEED={seed}")
        check(seed)
        if time.monotonic() > end:
            return


def check(seed: int) -> None:
    """Live, and fail with a report when anything is broken in the end."""
    life = live(seed)
    if life.broken:
        pytest.fail(life.report(), pytrace=False)
