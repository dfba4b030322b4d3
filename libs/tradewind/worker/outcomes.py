"""How attempts ended, and which of these outcomes one message to the node task manager holds."""

from dataclasses import dataclass, field

import msgspec

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.server.sizes import size_of
from tradewind.worker.notes import Line
from tradewind.worker.outputs import Ending


class Completion(msgspec.Struct, frozen=True, gc=False):
    """A node that ran; `eager_token` is the token of an eager node that continues with its outputs, "" for none."""

    token: str
    ending: Ending
    duration_ns: int
    traceparent: str
    eager_token: str

    def size(self) -> int:
        """Return the bytes of the texts that it holds."""
        if not isinstance(self.ending, list):
            return size_of(self.ending.form_json)
        size = 0
        for _, text in self.ending:
            size += size_of(text)
        return size

    def write(self, message: work_pb2.NodeTaskCompletion) -> None:
        """Write it into a message. Setting fields one by one costs half as much as keyword arguments."""
        message.token = self.token
        if self.traceparent:
            message.traceparent = self.traceparent
        if self.eager_token:
            message.eager_token = self.eager_token
        if isinstance(self.ending, list):
            for handle, text in self.ending:
                output = message.outputs.add()
                output.handle = handle
                output.value_json = text
        else:
            message.wait.CopyFrom(self.ending.to_message())
        duration = message.duration
        duration.seconds, duration.nanos = divmod(self.duration_ns, 1_000_000_000)


Outcome = Completion | work_pb2.NodeTaskFailure | str
"""A completion, a failure, or a token to give back."""


@dataclass(slots=True)
class Sent:
    """The contents of one message that must not be lost."""

    sequence: int
    completions: list[Completion] = field(default_factory=list)
    failures: list[work_pb2.NodeTaskFailure] = field(default_factory=list)
    give_backs: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    size: int = 0
    farewell: bool = False
    """Whether it says that the worker takes no more node tasks, which was not acknowledged before."""

    @property
    def outcomes(self) -> int:
        """How many outcomes are in it."""
        return len(self.completions) + len(self.failures) + len(self.give_backs)

    def drop(self, token: str) -> None:
        """Forget the outcome of a token."""
        self.completions = [each for each in self.completions if each.token != token]
        self.failures = [each for each in self.failures if each.token != token]
        self.give_backs = [each for each in self.give_backs if each != token]

    def report_of(self, token: str) -> "Sent":
        """Return a message with only the completion or failure of a token."""
        completions = [each for each in self.completions if each.token == token]
        return Sent(self.sequence, completions, [each for each in self.failures if each.token == token])

    def tokens(self) -> list[str]:
        """Return the tokens of all outcomes in it."""
        tokens = [completion.token for completion in self.completions]
        tokens += [failure.token for failure in self.failures]
        tokens += self.give_backs
        return tokens

    def __bool__(self) -> bool:
        return bool(self.completions or self.failures or self.give_backs or self.lines or self.farewell)


def token_of(outcome: Outcome) -> str:
    """Return the token of an outcome."""
    return outcome if isinstance(outcome, str) else outcome.token
