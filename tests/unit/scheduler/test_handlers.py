"""Handlers that run on failure or last: where they may be in a flow, when they run, how they affect the outcome."""

from typing import Any

import pytest

from tests.unit.scheduler.flows import analyzed, edge, flow, node
from tradewind.scheduler.domain.chain_state import ChainState, ComponentEnd, CycleFacts, CycleOrigin, StopRequest
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.ending import ended_state, outcome_so_far
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.handlers import NOT_FAILED, Handlers, Phase
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.weather import definition_from_json

HANDLERS = Handlers(("1", "2"), ("3",))
GOOD, BAD = ComponentEnd(completed=2, sinks_completed=1), ComponentEnd(failed=1, skipped=1)


def faults_of(**weather: Any) -> dict[str, str]:
    """Return the violations of a flow a -> b, c -> d, e."""
    nodes = [node(name) for name in "abcde"]
    analysis = analyzed(flow(nodes=nodes, edges=[edge("a", "b"), edge("c", "d")], **weather))
    return {violation.path: violation.message for violation in analysis.violations}


def test_handlers_are_separate_components() -> None:
    nodes = [node(name) for name in "abcde"]
    given = flow(nodes=nodes, edges=[edge("a", "b"), edge("c", "d")], on_failure=["d", "c"], **{"finally": ["e"]})
    definition = analyzed(given).definition
    assert definition is not None
    assert definition.handlers() == Handlers(("1",), ("2",))
    assert definition_from_json(definition.to_json()) == definition
    plain = analyzed(flow(nodes=nodes)).definition
    assert plain is not None
    assert plain.handlers() is None


def test_all_handler_faults_are_reported_at_once() -> None:
    found = faults_of(on_failure=["d", "x", "e"], **{"finally": ["e", "b"]})
    assert found["on_failure[1]"].startswith('no node "x"')
    assert found["finally[0]"].startswith('"e" is already in on_failure')
    assert found["edges[0]"].startswith('joins "a" (neither) and "b" (finally); nodes that run on failure or last get')
    assert found["edges[1]"].startswith('joins "c" (neither) and "d" (on_failure)')


def test_flow_of_handlers_only_is_refused() -> None:
    assert "nodes" in faults_of(on_failure=["a", "b", "c", "d"], **{"finally": ["e"]})


@pytest.mark.parametrize(
    ("over", "phase"),
    [("", "main"), ("0", "on_failure"), ("01", "on_failure"), ("012", "finally"), ("0123", "over"), ("12", "main")],
)
def test_phase_follows_from_ended_components(over: str, phase: str) -> None:
    assert HANDLERS.phase(set(over), 4) is Phase(phase)


def due(ended: str, withheld: str, outcome: CycleStatus) -> dict[str, str]:
    return dict(HANDLERS.due(set(ended), set(withheld), 4, outcome))


def test_due_handlers_follow_from_the_outcome() -> None:
    assert due("", "123", CycleStatus.COMPLETED) == {}
    skipped = {"1": NOT_FAILED, "2": NOT_FAILED, "3": ""}
    assert due("0", "123", CycleStatus.COMPLETED) == skipped
    assert due("0", "123", CycleStatus.CANCELLED) == skipped
    for outcome in (CycleStatus.FAILED, CycleStatus.PARTIAL, CycleStatus.TIMEOUT):
        assert due("0", "123", outcome) == {"1": "", "2": ""}
    assert due("01", "23", CycleStatus.FAILED) == {"2": ""}
    assert due("012", "3", CycleStatus.FAILED) == {"3": ""}
    assert due("0123", "", CycleStatus.FAILED) == {}


def test_finally_waits_for_on_failure_that_began_before_the_cycle_was_cancelled() -> None:
    assert due("0", "3", CycleStatus.CANCELLED) == {}
    assert due("01", "3", CycleStatus.CANCELLED) == {}
    assert due("0", "23", CycleStatus.CANCELLED) == {"2": NOT_FAILED}
    assert due("012", "3", CycleStatus.CANCELLED) == {"3": ""}


def state(stop: StopRequest | None = None, **ends: ComponentEnd) -> ChainState:
    """Return a run of four components of which these have ended."""
    facts = CycleFacts(
        "r", "u", 1, CycleOrigin.RUN_FLOW, 0, 0, 0, 8, 4, FailurePolicy.SKIP_DOWNSTREAM, handlers=HANDLERS
    )
    return ChainState(RunName("f", 0), facts, 3, components={key[1:]: end for key, end in ends.items()}, stop=stop)


@pytest.mark.parametrize(
    ("main", "handler", "status"),
    [
        (GOOD, GOOD, CycleStatus.COMPLETED),
        (GOOD, BAD, CycleStatus.PARTIAL),
        (BAD, GOOD, CycleStatus.FAILED),
        (BAD, BAD, CycleStatus.FAILED),
    ],
)
def test_failed_handler_turns_completed_into_partial_only(
    main: ComponentEnd, handler: ComponentEnd, status: CycleStatus
) -> None:
    skipped = ComponentEnd(skipped=2)
    final, _ = ended_state(state(c0=main, c1=handler, c2=skipped, c3=GOOD))
    assert final.status is status
    assert ("1 of the nodes that handle the outcome did not complete" in final.reason) == (handler is BAD)


def test_reason_of_a_cycle_counts_all_nodes_that_did_not_handle_its_outcome() -> None:
    lost = "2 of the nodes that handle the outcome did not complete"
    terminated = ComponentEnd(failed=1, terminated=1)
    assert ended_state(state(c0=GOOD, c1=terminated))[0].reason == lost
    assert ended_state(state(c0=BAD, c1=terminated))[0].reason == f"1 failed, 1 skipped of 8 nodes; {lost}"


def test_outcome_for_handlers_of_a_stopped_cycle() -> None:
    stop = StopRequest("ann", "enough", 5)
    assert outcome_so_far(state(stop, c0=BAD)) == (CycleStatus.CANCELLED, "enough (1 failed, 1 skipped of 8 nodes)")
    late = StopRequest("system", "too long", 5, timeout=True)
    assert outcome_so_far(state(late, c0=BAD))[0] is CycleStatus.TIMEOUT
