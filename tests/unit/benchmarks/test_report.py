"""The table and the page of the benchmark: the contents of rows; hand-written prose is never overwritten."""

import json

import pytest

from benchmarks.measure import Result
from benchmarks.report import BEGIN, END, Report, Sample, progress, replace_figures


def sample(round_: int, side: str, workload: str, *, seconds: float = 1.0, p50_ms: float = 10.0) -> Sample:
    result = Result(
        workload=workload,
        flows=100,
        nodes=1000,
        hops=10,
        seconds=seconds,
        cpu_seconds=2.0,
        latency_p50_ms=p50_ms,
        latency_p95_ms=2 * p50_ms,
    )
    return Sample(round_, side, result)


def report(sides: list[str], samples: list[Sample]) -> Report:
    return Report(
        started="2000-01-01 00:00 UTC",
        command="python -m benchmarks.run",
        rounds=2,
        sides=sides,
        machine={"Cores": "2"},
        versions={side: {"part": "1.0"} for side in sides},
        store_settings="appendonly yes",
        samples=samples,
    )


def test_a_row_holds_medians_and_the_ratio_of_each_round() -> None:
    table = report(
        ["tradewind", "celery"],
        [
            sample(1, "tradewind", "chain-1", p50_ms=10),
            sample(1, "celery", "chain-1", p50_ms=40),
            sample(2, "tradewind", "chain-1", p50_ms=20),
            sample(2, "celery", "chain-1", p50_ms=40),
        ],
    ).table()
    assert table.splitlines() == [
        "| workload | figure | Tradewind | Celery | beside Celery |",
        "| --- | --- | ---: | ---: | ---: |",
        "| chain-1 | time per hop, p50 | 1.50 ms | 4.00 ms | 0.38 x (0.25 to 0.50; better in 2 of 2) |",
    ]


def test_peers_alone_have_no_ratios() -> None:
    samples = [sample(1, side, "fan-10", seconds=2.0) for side in ("celery", "docket")]
    assert report(["celery", "docket"], samples).table().splitlines() == [
        "| workload | figure | Celery | pydocket |",
        "| --- | --- | ---: | ---: |",
        "| fan-10 | nodes per second | 500/s | 500/s |",
    ]


def test_one_workload_may_have_several_rows() -> None:
    rows = report(["celery"], [sample(1, "celery", "chain-50")]).table().splitlines()[2:]
    assert rows == ["| chain-50 | nodes per second | 1000/s |", "| chain-50 | CPU per 1000 nodes | 2.00 s |"]


def test_the_page_names_the_command_the_machine_and_all_versions() -> None:
    page = report(["tradewind", "celery"], [sample(1, "celery", "chain-1")]).markdown()
    assert "2 rounds, each side in turn: `python -m benchmarks.run`" in page
    assert "- Cores: 2" in page
    assert "- Celery: part 1.0" in page
    assert "appendonly yes" in page


def test_the_raw_figures_are_plain_json() -> None:
    raw = json.loads(json.dumps(report(["celery"], [sample(1, "celery", "chain-1")]).raw()))
    assert raw["samples"][0]["result"]["latency_p50_ms"] == 10.0


def test_progress_line_shows_the_figures_of_its_workload() -> None:
    line = progress(sample(3, "docket", "chain-1", p50_ms=12))
    assert " ".join(line.split()) == (
        "round 3 docket chain-1 1.2 ms (time per hop, p50); flow p50 12.0 ms, p95 24.0 ms"
    )


def test_replacing_figures_keeps_the_prose_around_them() -> None:
    page = f"# Mine\n\nbefore\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    once = replace_figures(page, "new")
    assert once == f"# Mine\n\nbefore\n\n{BEGIN}\n\nnew\n\n{END}\n\nafter\n"
    assert replace_figures(once, "new") == once


def test_a_missing_page_begins_with_a_heading() -> None:
    page = replace_figures(None, "figures")
    assert page.startswith("# Benchmarks\n")
    assert f"{BEGIN}\n\nfigures\n\n{END}\n" in page


@pytest.mark.parametrize(
    "page", ["no markers", f"{BEGIN} only", f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}", f"{BEGIN}{END}{END}"]
)
def test_a_page_without_one_pair_of_markers_is_left_alone(page: str) -> None:
    with pytest.raises(ValueError, match="put them back"):
        replace_figures(page, "new")
