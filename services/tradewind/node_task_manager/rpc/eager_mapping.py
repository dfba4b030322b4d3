"""Maps between Protobuf and the domain: node tasks that workers go on with by themselves."""

import functools
import re
from collections.abc import Iterator, Sequence

from msgspec import structs

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.eager import EagerSteps
from tradewind.node_task_manager.domain.names import TaskName, Token
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.server.all_faults import require
from tradewind.server.faults import InvalidInput, Violation

_NONCE = re.compile("[0-9A-Za-z._-]{1,64}")


@functools.lru_cache(maxsize=2000)
def step_messages(eager: EagerSteps) -> list[work_pb2.EagerStep]:
    """Return eager steps for a worker."""
    messages = []
    for step in eager.steps:
        message = work_pb2.EagerStep(
            after_node_id=step.after,
            handle=step.handle,
            node_id=step.node.node_id,
            node_type=step.node.node_type,
            config_json=step.node.config_json,
            input_handle=step.input_handle,
        )
        times = [ms for ms in (step.node.start_to_close_ms, step.node.total_ms) if ms]
        if times:
            message.timeout.FromMilliseconds(min(times))
        messages.append(message)
    return messages


def with_eager(
    worker_id: str, outcomes: list[tuple[int, Outcome]], completions: Sequence[work_pb2.NodeTaskCompletion]
) -> list[tuple[int, Outcome]]:
    """Put each attempt that the worker has begun by itself right after the outcome that it was begun on.

    That is how the attempt ended, or that it goes on. `outcomes` begin with those of `completions`, in the same order.
    Raises InvalidInput for tokens that a worker cannot have made.
    """
    begun = {
        outcomes[at][1].nonce: _parse_eager_token(at, each) for at, each in enumerate(completions) if each.eager_token
    }
    if not begun:
        return outcomes
    chained = list(_chained(worker_id, outcomes, begun))
    # Chains use up what they reach; nothing leads into a ring.
    if ring := [at for at in range(len(completions)) if outcomes[at][1].nonce in begun]:
        message = "must not lead back, token by token, to the node task that this completion ends"
        raise InvalidInput([Violation(f"completions[{at}].eager_token", message) for at in ring])
    return chained


def any_begun(outcomes: Sequence[tuple[int, Outcome]]) -> bool:
    """Say whether any outcome is an eager attempt that goes on: its worker waits to hear that this is known."""
    return any(outcome.kind is OutcomeKind.BEGUN for _, outcome in outcomes)


def require_no_eager(completions: Sequence[work_pb2.NodeTaskCompletion]) -> None:
    """Raise InvalidInput for eager tokens, which only a worker with a stream may send."""
    require(
        Violation(f"completions[{at}].eager_token", "must be empty: only a Work stream offers eager steps")
        for at, each in enumerate(completions)
        if each.eager_token
    )


def _chained(
    worker_id: str, outcomes: Sequence[tuple[int, Outcome]], begun: dict[str, Token]
) -> Iterator[tuple[int, Outcome]]:
    """Yield outcomes in chains, taking tokens out of `begun`."""
    eager_nonces = {token.nonce for token in begun.values()}
    ends = {outcome.nonce: outcome for _, outcome in outcomes if outcome.nonce in eager_nonces}
    for shard, outcome in outcomes:
        if outcome.nonce in eager_nonces:
            continue
        yield shard, outcome
        token = begun.pop(outcome.nonce, None)
        while token is not None:
            end = ends.pop(token.nonce, None)
            if end is None:
                yield shard, Outcome(token.task_id, token.attempt, token.nonce, OutcomeKind.BEGUN, eager=worker_id)
                break
            yield shard, structs.replace(end, eager=worker_id)
            token = begun.pop(token.nonce, None)


def _parse_eager_token(at: int, completion: work_pb2.NodeTaskCompletion) -> Token:
    """Parse a token that a worker made for the next node task. Raises InvalidInput."""
    try:
        before, token = Token.parse(completion.token), Token.parse(completion.eager_token)
        run, new = TaskName.parse(before.task_id), TaskName.parse(token.task_id)
    except ValueError as error:
        raise InvalidInput([Violation(f"completions[{at}].eager_token", str(error))]) from None
    same = token.shard == before.shard and new.run == run.run and new.item < 0 and not run.run.ad_hoc
    if not same or token.attempt != 1 or _NONCE.fullmatch(token.nonce) is None:
        message = "must name the same shard, a node task of the run, attempt 1 and a nonce of letters, digits or ._-"
        raise InvalidInput([Violation(f"completions[{at}].eager_token", message)])
    return token
