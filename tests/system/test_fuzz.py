"""Every RPC of a whole stack, called with anything by anybody: it refuses as the contract says, and keeps serving."""

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import structlog
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.system.fuzzed_stack import CALLERS, FAULTS, METHODS, FuzzedStack, fuzzed_stack
from tests.system.fuzzing import requests
from tests.system.promises import is_promised

EXAMPLES = 20
SHOWN = 2000
SHARE_S = 15.0 / len(METHODS)
"""How long each RPC is called, at least EXAMPLES times: 15 s for all, however tests are run in parallel.

The calls and their order are the same every time; only how far they get depends on the machine.
"""
LASTS_S = float(os.environ.get("FUZZ_SECONDS", "300"))


@dataclass(frozen=True, slots=True)
class Sent:
    """The caller, and what the call sends; shown at a readable length."""

    caller: str
    messages: list[Message | bytes]

    def __repr__(self) -> str:
        return f"by {self.caller}: {self.messages}"[:SHOWN]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedStack]:
    # Refusals are the point of these tests, so do not log each of them.
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    try:
        with fuzzed_stack(tmp_path_factory.mktemp("fuzz")) as stack:
            yield stack
    finally:
        structlog.configure(**config)


@pytest.mark.parametrize("name", METHODS)
def test_no_message_causes_an_internal_error(stack: FuzzedStack, name: str) -> None:
    end = time.monotonic() + SHARE_S
    for round in itertools.count():
        fuzz(stack, name, round)
        if time.monotonic() > end:
            return


@pytest.mark.fuzz
@pytest.mark.timeout(LASTS_S + 600)
def test_prolonged_fuzzing_causes_no_internal_error(stack: FuzzedStack) -> None:
    end = time.monotonic() + LASTS_S
    for round in itertools.count(1):
        for name in METHODS:
            if time.monotonic() > end:
                return
            fuzz(stack, name, round)


def fuzz(stack: FuzzedStack, name: str, number: int) -> None:
    """Call a method with messages derived from `number`, and check that the stack is well afterwards."""
    method = METHODS[name]
    stack.prepare()
    streamed = 3 if method.client_streaming else 1
    anything = requests(method.input_type, stack.sample_requests(method), stack.known) | st.binary(max_size=40)

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        sent=st.builds(Sent, st.sampled_from(CALLERS), st.lists(anything, min_size=1, max_size=streamed)),
    )
    def answers(sent: Sent) -> None:
        answer = stack.call(method, sent.messages, sent.caller)
        assert answer.code not in FAULTS, f"{answer.code}: {answer.details}"
        promised = is_promised(method, answer.reason, answer.details)
        assert promised or not answer.reason, f"the contract does not name {answer.reason}: {answer.details}"

    answers()
    stack.wait_until_alive(method)
