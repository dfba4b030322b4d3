"""What calls of workers without streams must look like; every fault is listed with its path."""

from collections.abc import Collection, Iterator, Sequence

from tradewind.node_task_manager.rpc.checks import count_fault
from tradewind.node_task_manager.rpc.work_mapping import token
from tradewind.server.all_faults import require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier

MAX_TOKENS = 500


def tokens_of(worker_id: str, path: str, tokens: Sequence[str], shards: Collection[int], field: str = "") -> None:
    """Raise InvalidInput for an invalid worker id, over 500 tokens, or texts in `path[at]field` that are no tokens."""
    require(
        [
            check_identifier("worker_id", worker_id),
            count_fault(path, tokens, MAX_TOKENS),
            *_token_faults(path, tokens[:MAX_TOKENS], shards, field),
        ]
    )


def _token_faults(path: str, tokens: Sequence[str], shards: Collection[int], field: str) -> Iterator[Violation]:
    for at, text in enumerate(tokens):
        try:
            token(text, shards, path, at, field)
        except InvalidInput as error:
            yield from error.violations
