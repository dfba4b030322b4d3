"""The statistics of the benchmark: percentiles, ratios over rounds, results, and reading a process's CPU time."""

import os
import subprocess
import sys

import pytest

from benchmarks.measure import ProcessStat, Ratio, Result, Timing, cpu_seconds, percentile, process_tree
from benchmarks.workloads import WORKLOADS, Shape, Workload


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([3.0], 50, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.5),
        ([4.0, 1.0, 3.0, 2.0], 0, 1.0),
        ([4.0, 1.0, 3.0, 2.0], 100, 4.0),
        ([0.0, 10.0], 95, 9.5),
    ],
)
def test_a_percentile_lies_between_its_neighbours(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


def test_a_percentile_needs_values_and_a_percentage() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="from 0 to 100"):
        percentile([1.0], 101)


def test_a_result_divides_by_flows_nodes_and_hops() -> None:
    chain = Workload("chain", Shape.CHAIN, flows=4, in_flight=2, warm_up=0)
    result = Result.of(chain, Timing(seconds=2.0, flow_seconds=[0.1, 0.2, 0.3, 0.4]), cpu_seconds=1.0)
    assert result.nodes == 40
    assert result.nodes_per_second == 20.0
    assert result.flows_per_second == 2.0
    assert result.latency_p50_ms == pytest.approx(250)
    assert result.hop_p50_ms == pytest.approx(25)
    assert result.cpu_seconds_per_1000_nodes == pytest.approx(25)


def test_result_refuses_missing_measurements() -> None:
    chain = Workload("chain", Shape.CHAIN, flows=4, in_flight=2, warm_up=0)
    with pytest.raises(ValueError, match="3 flows measured, expected 4"):
        Result.of(chain, Timing(2.0, [0.1] * 3), 1.0)


def test_a_ratio_is_the_median_of_the_rounds_that_both_ran() -> None:
    ours = {1: 10.0, 2: 30.0, 3: 8.0, 4: 1.0}
    theirs = {1: 10.0, 2: 10.0, 3: 2.0, 5: 1.0}
    assert Ratio.of(ours, theirs, higher_is_better=True) == Ratio(median=3.0, low=1.0, high=4.0, better=2, pairs=3)
    assert Ratio.of(ours, theirs, higher_is_better=False) == Ratio(median=3.0, low=1.0, high=4.0, better=0, pairs=3)
    assert Ratio.of({1: 1.0}, {2: 1.0}, higher_is_better=True) is None


def test_a_process_name_may_hold_brackets_and_spaces() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    line = f"42 (a) (b c) S 7 42 42 0 -1 4194560 100 0 0 0 {ticks} {ticks} {ticks} {ticks} 20 0 1 0 12345 1000 10"
    assert ProcessStat.parse(line) == ProcessStat(parent=7, started=12345, cpu_seconds=4.0)


def test_cpu_time_includes_children_that_have_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    before = cpu_seconds([os.getpid()])
    subprocess.run([sys.executable, "-c", burn], check=True, timeout=60)
    assert 0.25 < cpu_seconds([os.getpid()]) - before < 5


def test_process_tree_holds_root_and_children() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        tree = process_tree([os.getpid(), child.pid])
        assert tree[child.pid].parent == os.getpid()
        assert process_tree([child.pid]).keys() == {child.pid}
    finally:
        child.kill()
        child.communicate()
    assert process_tree([child.pid]) == {}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
def test_a_scaled_workload_keeps_its_shape(workload: Workload) -> None:
    tiny = workload.scaled(0.0001)
    assert (tiny.flows, tiny.in_flight, tiny.shape) == (1, 1, workload.shape)
    assert workload.scaled(1) == workload
    assert workload.warming().flows == workload.warm_up


def test_wrong_answer_of_a_workload_is_reported() -> None:
    WORKLOADS["fan-1"].check(200)
    with pytest.raises(ValueError, match="fan-1: a flow ended with n = 198, expected 200"):
        WORKLOADS["fan-1"].check(198)
