"""Reports that wait to be sent to the node task manager, or were sent but are not acknowledged yet."""

import asyncio
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker.acknowledged import AcknowledgedMessages
from tradewind.worker.eager import UnconfirmedTokens
from tradewind.worker.forking import end_if_forked, fork_count
from tradewind.worker.notes import Line, Notes
from tradewind.worker.outcomes import Completion, Sent
from tradewind.worker.outputs import Ending
from tradewind.worker.waiting_outcomes import WaitingOutcomes

REMEMBERED_TOKENS = 4096


class Outbox:
    """Collects reports while a message is being written, and hands them over as the next message.

    Outcomes and log lines are kept until a message with them is acknowledged; after a stream has ended, `requeue` puts
    unacknowledged ones back in front. `Notes` holds lines and progress.
    Any thread may call `progress` and `log`; everything else belongs to the loop's thread.
    """

    def __init__(self, held_tokens: Callable[[], Iterable[str]]) -> None:
        """`held_tokens()` returns every token without an outcome; it is called when a renewal is written."""
        self._held_tokens = held_tokens
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._forks = fork_count()
        self._has_reports = asyncio.Event()
        self._wake_scheduled = False
        self._acknowledgement = asyncio.Event()
        self._renew = False
        self._pong = 0
        self._draining = False
        self._farewell = False
        """Whether to wait until a message that says `draining` is acknowledged."""
        self._unconfirmed = UnconfirmedTokens()
        self._notes = Notes(self._unconfirmed)
        self._waiting = WaitingOutcomes(self._unconfirmed)
        self._unacknowledged: deque[Sent] = deque()
        self._acknowledged = AcknowledgedMessages()
        self._unsettled: set[str] = set()
        """Tokens with an outcome that is not acknowledged, wherever it is held here."""
        self._settled: OrderedDict[str, None] = OrderedDict()
        """The tokens whose outcomes were acknowledged last, the newest at the end."""

    def complete(
        self, token: str, ending: Ending, duration_ns: int, traceparent: str = "", eager_token: str = ""
    ) -> None:
        """Report that a node ran, and that another was begun with its outputs under `eager_token`, if not "".

        How far it was is sent as well if it waits now, else not.
        """
        self._waiting.completions.append(Completion(token, ending, duration_ns, traceparent, eager_token))
        if eager_token:
            self._unconfirmed[eager_token] = 0
        if isinstance(ending, list):
            self._notes.forget_progress(token)
        self._end(token)

    def fail(self, failure: work_pb2.NodeTaskFailure) -> None:
        """Report that a node did not succeed; how far it was is sent with that."""
        self._waiting.failures.append(failure)
        self._end(failure.token)

    def give_back(self, token: str) -> None:
        """Give a node task back."""
        self._waiting.give_backs.append(token)
        self._notes.forget_progress(token)
        self._end(token)

    def progress(self, token: str, percent: int, message: str, step: str) -> None:
        """Report a node's progress, replacing progress that was not sent yet."""
        self._notes.progress(token, percent, message, step)
        self.wake()

    def log(self, token: str, level: str, message: str, created_ns: int) -> None:
        """Send a line, or count it as dropped when too many wait or are not acknowledged."""
        self._notes.log(Line(token, level, message, created_ns))
        self.wake()

    def renew(self) -> None:
        """List every held token in the next message."""
        self._renew = True
        self.wake()

    def pong(self, value: int) -> None:
        """Answer a ping in the next message."""
        self._pong = value
        self.wake()

    def drain(self, *, connected: bool) -> None:
        """Say in the next message that the worker takes no more node tasks.

        If it is `connected`, some may be on their way. A renewal takes effect after all that was assigned before, so
        nothing more comes once that message is acknowledged; `flushed` waits for that.
        """
        self._draining = self._renew = True
        self._farewell = connected
        self.wake()

    def remembers(self, token: str) -> bool:
        """Return whether an outcome of the token is held here, or was acknowledged recently."""
        return token in self._unsettled or token in self._settled

    def is_unconfirmed(self, token: str) -> bool:
        """Return whether this worker made the token, and the node task manager may not know it yet."""
        return token in self._unconfirmed

    def outcome_tokens(self) -> list[str]:
        """Return the tokens of completions and failures that are not acknowledged."""
        tokens = self._waiting.tokens()
        for sent in self._unacknowledged:
            tokens += [completion.token for completion in sent.completions]
            tokens += [failure.token for failure in sent.failures]
        return tokens

    def drop(self, token: str) -> list[str]:
        """Forget the outcome of a token that has lost its lease, and of eager nodes that were begun with it.

        Returns the tokens of all of them.
        """
        lost = [token]
        for each in lost:
            lost += self._drop(each)
        return lost

    def _drop(self, token: str) -> list[str]:
        """Forget an outcome; return the tokens of eager nodes that were begun with it."""
        self._unconfirmed.pop(token, None)
        if token not in self._unsettled:
            return []
        self._settle([token])
        completions = self._waiting.completions_of(token)
        self._waiting.drop(token)
        for sent in self._unacknowledged:
            completions += sent.report_of(token).completions
            sent.drop(token)
        self._acknowledgement.set()
        return [each.eager_token for each in completions if each.eager_token]

    async def wait(self) -> None:
        """Wait until there is something to send."""
        await self._has_reports.wait()

    def wake(self) -> None:
        """Make `wait` return; callable from any thread."""
        if self._has_reports.is_set() or self._wake_scheduled:
            return
        if threading.get_ident() == self._loop_thread:
            self._has_reports.set()
            return
        self._wake_scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens
            self._loop.call_soon_threadsafe(self._wake_in_loop)

    def take(self, sequence: int) -> work_pb2.WorkRequest:
        """Return the next message: waiting reports, up to 500 outcomes, 500 log lines and about 2 MiB."""
        end_if_forked(self._forks)
        self._has_reports.clear()
        request = work_pb2.WorkRequest()
        request.sequence = sequence
        if self._draining:
            request.draining = True
        if self._pong:
            request.pong, self._pong = self._pong, 0
        sent = Sent(sequence, farewell=self._farewell)
        sent.lines, sent.size = self._notes.take(request)
        if self._waiting:
            tokens_with_lines = self._notes.tokens_with_lines() if self._waiting.give_backs else ()
            self._waiting.take(request, sent, tokens_with_lines)
        if self._renew:
            self._renew = False
            request.renew = True
            request.held_tokens.extend(self._held_tokens())
        if sent:
            self._unacknowledged.append(sent)
        if self._waiting or self._notes:
            self._has_reports.set()
        return request

    def acknowledge(self, sequence: int) -> None:
        """Forget the contents of messages up to `sequence`."""
        while self._unacknowledged and self._unacknowledged[0].sequence <= sequence:
            sent = self._unacknowledged.popleft()
            if sent.lines and self._notes.acknowledge(len(sent.lines)):
                self.wake()
            self._acknowledged.add(sent)
            self._settle(sent.tokens())
            if sent.farewell:
                self._farewell = False
        if self._unconfirmed:
            self._unconfirmed.acknowledge(sequence)
        self._release()
        self._acknowledgement.set()

    def requeue(self) -> None:
        """Queue what was not acknowledged on the stream that ended again, in front, for the next stream."""
        self._notes.requeue([line for sent in self._unacknowledged for line in sent.lines])
        while self._unacknowledged:
            self._waiting.requeue(self._unacknowledged.pop())
        self._unconfirmed.mark_unsent()
        self._release()
        # The next hello says it.
        self._farewell = False
        self._acknowledgement.set()
        self.wake()

    def resync(self) -> None:
        """Report again what was acknowledged last, and renew: the store may have lost its last second."""
        self._report_again(self._acknowledged.take())
        self.renew()

    def assigned_again(self, token: str) -> None:
        """Report again how a node task ended that `remembers` knows: the store has lost that, or it is on its way.

        If the outcome is not kept any more, the node task is given back, so that it runs again at once.
        """
        if token in self._unsettled:
            return
        report = self._acknowledged.report_of(token)
        if report is None:
            self.give_back(token)
        else:
            self._report_again([report])
            self.wake()

    def _report_again(self, messages: list[Sent]) -> None:
        """Queue completions and failures that were acknowledged again; `messages` begin with the oldest.

        Eager nodes that were lost or given back since are not begun again.
        """
        for sent in reversed(messages):
            self._waiting.requeue_reports(sent)
            self._unsettled.update(completion.token for completion in sent.completions)
            self._unsettled.update(failure.token for failure in sent.failures)
        self._waiting.drop_eager_tokens(self._unsettled.union(self._held_tokens()))

    async def flushed(self) -> None:
        """Wait until every outcome and every log line is acknowledged, and that the worker is leaving."""
        while self._unsettled or self._notes.has_lines or self._unacknowledged or self._farewell:
            self._acknowledgement.clear()
            await self._acknowledgement.wait()

    def _release(self) -> None:
        """Return reports that were put aside to their queues: they go into the next message, or aside once more."""
        released_notes = self._notes.release()
        if self._waiting.release() or released_notes:
            self.wake()

    def _end(self, token: str) -> None:
        self._unsettled.add(token)
        self._has_reports.set()

    def _settle(self, tokens: list[str]) -> None:
        self._unsettled.difference_update(tokens)
        for token in tokens:
            # After a resync, the token may be here already.
            self._settled[token] = None
            self._settled.move_to_end(token)
        while len(self._settled) > REMEMBERED_TOKENS:
            self._settled.popitem(last=False)

    def _wake_in_loop(self) -> None:
        self._wake_scheduled = False
        self._has_reports.set()
