"""Outcomes that wait for the next message to the node task manager."""

from collections import deque
from collections.abc import Container

import msgspec

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker.eager import UnconfirmedTokens
from tradewind.worker.outcomes import Completion, Outcome, Sent, token_of

MAX_ITEMS = 500
MAX_BYTES = 2 * 1024 * 1024


class WaitingOutcomes:
    """Completions, failures and tokens to give back, in the order in which each are to be sent.

    An outcome of a token in `unconfirmed` goes into the message that makes the token known, or waits until that message
    is acknowledged.
    """

    def __init__(self, unconfirmed: UnconfirmedTokens) -> None:
        self._unconfirmed = unconfirmed
        self.completions: deque[Completion] = deque()
        self.failures: deque[work_pb2.NodeTaskFailure] = deque()
        self.give_backs: deque[str] = deque()
        self._withheld: list[Outcome] = []
        """Outcomes that must not go into the message that was taken last."""

    def __bool__(self) -> bool:
        """Return whether there is anything to take."""
        return bool(self.completions or self.failures or self.give_backs)

    def tokens(self) -> list[str]:
        """Return the tokens of completions and failures."""
        tokens = [token_of(outcome) for outcome in self._withheld if not isinstance(outcome, str)]
        tokens += [completion.token for completion in self.completions]
        tokens += [failure.token for failure in self.failures]
        return tokens

    def completions_of(self, token: str) -> list[Completion]:
        """Return the completions of a token."""
        outcomes = (*self._withheld, *self.completions)
        return [each for each in outcomes if isinstance(each, Completion) and each.token == token]

    def drop(self, token: str) -> None:
        """Forget the outcome of a token."""
        self._withheld = [each for each in self._withheld if token_of(each) != token]
        self.completions = deque(each for each in self.completions if each.token != token)
        self.failures = deque(each for each in self.failures if each.token != token)
        self.give_backs = deque(each for each in self.give_backs if each != token)

    def drop_eager_tokens(self, known: Container[str]) -> None:
        """Let completions begin no eager node whose token is not `known` any more."""
        self.completions = deque(
            each if each.eager_token in known else msgspec.structs.replace(each, eager_token="")
            for each in self.completions
        )

    def requeue(self, sent: Sent) -> None:
        """Put the outcomes in a message in front, to be sent again: others may be of nodes that began with these."""
        self.requeue_reports(sent)
        self.give_backs.extendleft(reversed(sent.give_backs))

    def requeue_reports(self, sent: Sent) -> None:
        """Put the completions and failures in a message in front."""
        self.completions.extendleft(reversed(sent.completions))
        self.failures.extendleft(reversed(sent.failures))

    def take(self, request: work_pb2.WorkRequest, sent: Sent, tokens_with_lines: Container[str]) -> None:
        """Move outcomes into a message, and note them in `sent`: up to 500, and about 2 MiB with what it holds already.

        A token with lines that wait is not given back: those of a token that was given back are not accepted any more.
        """
        if self.completions:
            self._take_completions(request, sent)
        if self.failures:
            self._take_failures(request, sent)
        while self.give_backs and sent.outcomes < MAX_ITEMS:
            token = self.give_backs.popleft()
            if token in tokens_with_lines:
                self._withheld.append(token)
            elif not self._withhold(token, sent.sequence):
                request.give_back_tokens.append(token)
                sent.give_backs.append(token)

    def _take_completions(self, request: work_pb2.WorkRequest, sent: Sent) -> None:
        waiting, unconfirmed, messages = self.completions, self._unconfirmed, request.completions
        slots, bytes_left = MAX_ITEMS, MAX_BYTES - sent.size
        while waiting and slots:
            size = waiting[0].size()
            if bytes_left < size and sent.completions:
                break
            completion = waiting.popleft()
            if unconfirmed and self._withhold(completion, sent.sequence):
                continue
            sent.completions.append(completion)
            completion.write(messages.add())
            if completion.eager_token:
                unconfirmed[completion.eager_token] = sent.sequence
            bytes_left -= size
            slots -= 1
        sent.size = MAX_BYTES - bytes_left

    def _take_failures(self, request: work_pb2.WorkRequest, sent: Sent) -> None:
        while self.failures and sent.outcomes < MAX_ITEMS and sent.size < MAX_BYTES:
            failure = self.failures.popleft()
            if not self._withhold(failure, sent.sequence):
                request.failures.append(failure)
                sent.failures.append(failure)
                sent.size += failure.ByteSize()

    def _withhold(self, outcome: Outcome, sequence: int) -> bool:
        """Put aside an outcome that must not go into this message; return whether it was put aside."""
        withheld = self._unconfirmed.withholds(token_of(outcome), sequence)
        if withheld:
            self._withheld.append(outcome)
        return withheld

    def release(self) -> bool:
        """Queue what was put aside again, to be taken or put aside once more; return whether there was anything."""
        if not self._withheld:
            return False
        withheld, self._withheld = self._withheld, []
        for outcome in withheld:
            if isinstance(outcome, str):
                self.give_backs.append(outcome)
            elif isinstance(outcome, Completion):
                self.completions.append(outcome)
            else:
                self.failures.append(outcome)
        return True
