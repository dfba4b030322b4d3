"""Reports that wait to be sent to the node task manager, or were sent but are not acknowledged yet."""

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

import msgspec

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker.eager import UnconfirmedTokens
from tradewind.worker.notes import Line, Notes
from tradewind.worker.outcomes import Completion, Outcome, Sent, token_of
from tradewind.worker.outputs import Ending

MAX_ITEMS = 500
MAX_BYTES = 2 * 1024 * 1024
REMEMBERED_TOKENS = 4096
RESYNC_S = 5.0
RESYNC_MESSAGES = 2000
RESYNC_BYTES = 64 * 1024 * 1024


class Outbox:
    """Collects reports while a message is being written, and hands them over as the next message.

    Outcomes and log lines are kept until a message with them is acknowledged; after a stream has ended, `requeue` puts
    unacknowledged ones back in front. `Notes` holds lines and progress.
    Reports on a token that this worker made go into the message that makes the token known, or wait until that message
    is acknowledged. A give-back waits until the log lines of its node task have been sent.
    Any thread may call `progress` and `log`; everything else belongs to the loop's thread.
    """

    def __init__(self, held_tokens: Callable[[], Iterable[str]]) -> None:
        """`held_tokens()` returns every token without an outcome; it is called when a renewal is written."""
        self._held_tokens = held_tokens
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._has_reports = asyncio.Event()
        self._wake_scheduled = False
        self._acknowledgement = asyncio.Event()
        self._completions: deque[Completion] = deque()
        self._failures: deque[work_pb2.NodeTaskFailure] = deque()
        self._give_backs: deque[str] = deque()
        self._renew = False
        self._pong = 0
        self._draining = False
        self._farewell = False
        """Whether to wait until a message that says `draining` is acknowledged."""
        self._unconfirmed = UnconfirmedTokens()
        self._notes = Notes(self._unconfirmed)
        self._withheld: list[Outcome] = []
        """Outcomes that must not go into the message that was taken last."""
        self._unacknowledged: deque[Sent] = deque()
        self._recent: deque[tuple[float, Sent]] = deque()
        """The messages that were acknowledged last, and when, to be sent again after an outage of the store."""
        self._recent_bytes = 0
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
        self._completions.append(Completion(token, ending, duration_ns, traceparent, eager_token))
        if eager_token:
            self._unconfirmed[eager_token] = 0
        if isinstance(ending, list):
            self._notes.forget_progress(token)
        self._end(token)

    def fail(self, failure: work_pb2.NodeTaskFailure) -> None:
        """Report that a node did not succeed; how far it was is sent with that."""
        self._failures.append(failure)
        self._end(failure.token)

    def give_back(self, token: str) -> None:
        """Give a node task back."""
        self._give_backs.append(token)
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
        tokens = [token_of(outcome) for outcome in self._withheld if not isinstance(outcome, str)]
        tokens += [completion.token for completion in self._completions]
        tokens += [failure.token for failure in self._failures]
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
        outcomes = [
            *self._withheld,
            *self._completions,
            *(c for sent in self._unacknowledged for c in sent.completions),
        ]
        eager_tokens = [
            each.eager_token
            for each in outcomes
            if isinstance(each, Completion) and each.token == token and each.eager_token
        ]
        self._withheld = [each for each in self._withheld if token_of(each) != token]
        self._completions = deque(each for each in self._completions if each.token != token)
        self._failures = deque(each for each in self._failures if each.token != token)
        self._give_backs = deque(each for each in self._give_backs if each != token)
        for sent in self._unacknowledged:
            sent.completions = [each for each in sent.completions if each.token != token]
            sent.failures = [each for each in sent.failures if each.token != token]
            sent.give_backs = [each for each in sent.give_backs if each != token]
        self._acknowledgement.set()
        return eager_tokens

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
        self._has_reports.clear()
        request = work_pb2.WorkRequest()
        request.sequence = sequence
        if self._draining:
            request.draining = True
        if self._pong:
            request.pong, self._pong = self._pong, 0
        sent = Sent(sequence, farewell=self._farewell)
        sent.lines, size = self._notes.take(request)
        self._take_outcomes(request, sent, MAX_BYTES - size)
        if self._renew:
            self._renew = False
            request.renew = True
            request.held_tokens.extend(self._held_tokens())
        if sent:
            self._unacknowledged.append(sent)
        if self._completions or self._failures or self._give_backs or self._notes:
            self._has_reports.set()
        return request

    def acknowledge(self, sequence: int) -> None:
        """Forget the contents of messages up to `sequence`."""
        now = time.monotonic()
        while self._unacknowledged and self._unacknowledged[0].sequence <= sequence:
            sent = self._unacknowledged.popleft()
            if sent.lines and self._notes.acknowledge(len(sent.lines)):
                self.wake()
            self._recent.append((now, sent))
            self._recent_bytes += sent.size
            self._settle(sent.tokens())
            if sent.farewell:
                self._farewell = False
        while self._recent and (
            self._recent[0][0] < now - RESYNC_S
            or len(self._recent) > RESYNC_MESSAGES
            or self._recent_bytes > RESYNC_BYTES
        ):
            self._recent_bytes -= self._recent.popleft()[1].size
        if self._unconfirmed:
            self._unconfirmed.acknowledge(sequence)
        self._release()
        self._acknowledgement.set()

    def requeue(self) -> None:
        """Queue what was not acknowledged on the stream that ended again, in front, for the next stream."""
        self._notes.requeue([line for sent in self._unacknowledged for line in sent.lines])
        while self._unacknowledged:
            sent = self._unacknowledged.pop()
            self._completions.extendleft(reversed(sent.completions))
            self._failures.extendleft(reversed(sent.failures))
            self._give_backs.extendleft(reversed(sent.give_backs))
        self._unconfirmed.mark_unsent()
        self._release()
        # The next hello says it.
        self._farewell = False
        self._acknowledgement.set()
        self.wake()

    def resync(self) -> None:
        """Report again what was acknowledged last, and renew: the store may have lost its last second.

        That is what was acknowledged in the 5 s before the last acknowledgement, not before now: an outage may have
        been longer than that.
        """
        for _, sent in reversed(self._recent):
            self._report_again(sent.completions, sent.failures)
        self._recent.clear()
        self._recent_bytes = 0
        self._forget_lost_eager_nodes()
        self.renew()

    def assigned_again(self, token: str) -> None:
        """Report again how a node task ended that `remembers` knows: the store has lost that, or it is on its way.

        If the outcome is not kept any more, the node task is given back, so that it runs again at once.
        """
        if token in self._unsettled:
            return
        for _, sent in self._recent:
            completions = [each for each in sent.completions if each.token == token]
            failures = [each for each in sent.failures if each.token == token]
            if completions or failures:
                self._report_again(completions, failures)
                self._forget_lost_eager_nodes()
                self.wake()
                return
        self.give_back(token)

    def _report_again(self, completions: list[Completion], failures: list[work_pb2.NodeTaskFailure]) -> None:
        # In front, because later outcomes may be of nodes that were begun with these.
        self._completions.extendleft(reversed(completions))
        self._failures.extendleft(reversed(failures))
        self._unsettled.update(completion.token for completion in completions)
        self._unsettled.update(failure.token for failure in failures)

    def _forget_lost_eager_nodes(self) -> None:
        """Do not begin eager nodes again that were lost or given back since."""
        known_tokens = self._unsettled.union(self._held_tokens())
        self._completions = deque(
            each if each.eager_token in known_tokens else msgspec.structs.replace(each, eager_token="")
            for each in self._completions
        )

    async def flushed(self) -> None:
        """Wait until every outcome and every log line is acknowledged, and that the worker is leaving."""
        while self._unsettled or self._notes.has_lines or self._unacknowledged or self._farewell:
            self._acknowledgement.clear()
            await self._acknowledgement.wait()

    def _take_outcomes(self, request: work_pb2.WorkRequest, sent: Sent, bytes_left: int) -> None:
        slots, sequence, unconfirmed = MAX_ITEMS, request.sequence, self._unconfirmed
        completions = request.completions
        while self._completions and slots > 0:
            size = self._completions[0].size()
            if bytes_left < size and sent.completions:
                break
            completion = self._completions.popleft()
            if unconfirmed and self._withhold(completion, sequence):
                continue
            sent.completions.append(completion)
            completion.write(completions.add())
            if completion.eager_token:
                unconfirmed[completion.eager_token] = sequence
            bytes_left -= size
            slots -= 1
        while self._failures and slots > 0 and bytes_left > 0:
            failure = self._failures.popleft()
            if unconfirmed and self._withhold(failure, sequence):
                continue
            request.failures.append(failure)
            sent.failures.append(failure)
            bytes_left -= failure.ByteSize()
            slots -= 1
        # Log lines go first: those of a token that was given back are not accepted any more.
        tokens_with_lines = self._notes.tokens_with_lines() if self._give_backs else ()
        while self._give_backs and slots > 0:
            token = self._give_backs.popleft()
            if token in tokens_with_lines:
                self._withheld.append(token)
                continue
            if unconfirmed and self._withhold(token, sequence):
                continue
            request.give_back_tokens.append(token)
            sent.give_backs.append(token)
            slots -= 1
        sent.size = MAX_BYTES - bytes_left

    def _withhold(self, outcome: Outcome, sequence: int) -> bool:
        """Put aside an outcome that must not go into this message; return whether it was put aside."""
        withheld = self._unconfirmed.withholds(token_of(outcome), sequence)
        if withheld:
            self._withheld.append(outcome)
        return withheld

    def _release(self) -> None:
        """Return outcomes that were put aside to their queues: they go into the next message, or aside once more."""
        withheld, self._withheld = self._withheld, []
        for outcome in withheld:
            if isinstance(outcome, str):
                self._give_backs.append(outcome)
            elif isinstance(outcome, Completion):
                self._completions.append(outcome)
            else:
                self._failures.append(outcome)
        if self._notes.release() or withheld:
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
