"""The gate: finds out who calls, looks up the method's rule, and lets the call through or not."""

import asyncio
import hmac
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import structlog
from google.protobuf.message import Message

from tradewind.server.access.authority import Authority
from tradewind.server.access.certificates import CertificateRoles
from tradewind.server.access.identity import SERVICE, UNNAMED, Identity, require_own, set_identity, user_meant
from tradewind.server.access.limits import Limits
from tradewind.server.access.metering import counted_calls, set_meter
from tradewind.server.access.methods import OPEN, Rule, is_read, rule
from tradewind.server.access.refusals import refused
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of
from tradewind.server.ending import end_tasks
from tradewind.server.faults import PermissionDenied, Unauthenticated, Unavailable
from tradewind.server.interception import Behavior, Context
from tradewind.server.rates import Rate
from tradewind.server.side_tasks import SideTasks

OnOutage = Literal["refuse", "reads", "all"]
"""Which calls pass with tokens that were good before, while nobody can say whether they still are."""

STALE_S = 300.0
"""How long the last answer about a token still counts while the authority cannot be asked."""
_MOST_KNOWN = 10_000
_AGAIN_S = 1.0
_SENT_S = 0.1
_ASKED_AT_ONCE = 20

_log = structlog.get_logger(__name__)


@runtime_checkable
class Owning(Protocol):
    """A service that knows who owns the things that a request names."""

    async def owners(self, request: Any) -> Collection[str]:
        """Return the owners of the things that a request names and that exist."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    """The last answer about a token, and the time until which it counts."""

    answer: Identity | Unauthenticated
    until: float


@dataclass(slots=True, eq=False)
class _Stream:
    """A stream that a caller has opened; `refusal` says why it is ended."""

    identity: Identity
    task: "asyncio.Task[Any]"
    refusal: Exception | None = None


class Gate:
    """Surrounds every call. Raises Unauthenticated, PermissionDenied, and Unavailable when nobody can be asked.

    The gate remembers for `cache_s` who owns a token, and asks again at once when the authority reports a change. Only
    then does it check open streams again too, retrying until it gets an answer. It recognizes `service_tokens` by
    itself, and also `certificates`, which count only for calls without a token: a server that passes on a user's call
    must not be taken for that user.
    """

    def __init__(
        self,
        authority: Authority,
        *,
        service_tokens: Sequence[str] = (),
        cache_s: float = 5.0,
        on_outage: OnOutage = "reads",
        owning: Mapping[str, Owning] | None = None,
        rates: Mapping[str, Rate] | None = None,
        quotas: Mapping[str, int] | None = None,
        certificates: CertificateRoles | None = None,
    ) -> None:
        """Take `owning` services by the names of their gRPC services, `rates` and daily `quotas` by method."""
        self._limits = Limits(authority, rates or {}, quotas or {}, self._goes_on)
        self._authority = authority
        self._service_tokens = [each.encode() for each in service_tokens]
        self._certificates = certificates
        self._cache_s = cache_s
        self._on_outage = on_outage
        self._owning = dict(owning or {})
        self._known: dict[str, _Known] = {}
        self._asking: dict[str, asyncio.Task[Identity]] = {}
        self._streams: set[_Stream] = set()
        self._unsure: set[_Stream] = set()
        self._again: asyncio.TimerHandle | None = None
        self._changes = 0
        self._tasks = SideTasks()
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen for changes."""
        self._watching = asyncio.get_running_loop().create_task(self._authority.watch(self._changed))

    async def stop(self) -> None:
        """Stop listening for changes."""
        if self._watching is not None:
            await end_tasks([self._watching, *self._tasks])
            self._watching = None
        if self._again is not None:
            self._again.cancel()
        await self._authority.close()

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Surround the calls of one method."""
        if method.startswith(OPEN):
            return behavior
        found = rule(method)
        service, _, name = method[1:].partition("/")
        owning = self._owning.get(service)

        async def refused(request: Any, context: Context) -> Any:
            await self._caller(context, "")
            raise PermissionDenied("METHOD_CLOSED", f"{name} is closed: no role may call it")

        if found is None:
            return refused
        allowed = found

        async def admitted(request: Any, context: Context) -> Any:
            changes = self._changes
            identity = await self._caller(context, name)
            if not allowed.admits(identity.role):
                raise _too_small(identity, allowed, name)
            set_identity(identity)
            if isinstance(request, Message):
                _name_caller(request, identity)
                if allowed.owned and not identity.role.sees_all:
                    if owning is None:
                        raise PermissionDenied(
                            "METHOD_CLOSED",
                            f"{name} cannot tell who owns what it names, so users may not call it: ask an operator",
                        )
                    require_own(await owning.owners(request))
            if self._limits and identity.role is Role.USER:
                set_meter(self._limits)
                async with counted_calls(name):
                    return await served(identity, changes, request, context)
            return await served(identity, changes, request, context)

        async def served(identity: Identity, changes: int, request: Any, context: Context) -> Any:
            if allowed.lasts:
                return await self._last(identity, changes, behavior, request, context)
            return await behavior(request, context)

        return admitted

    def _goes_on(self, name: str) -> bool:
        return self._on_outage == "all" or (self._on_outage == "reads" and is_read(name))

    async def _last(self, identity: Identity, changes: int, behavior: Behavior, request: Any, context: Context) -> Any:
        """Serve a stream of a caller who was identified when there had been `changes` changes."""
        task = asyncio.current_task()
        assert task is not None
        stream = _Stream(identity, task)
        self._streams.add(stream)
        if changes != self._changes:
            # A change that came in the meantime did not find this stream among the open ones.
            self._doubt([stream])
        try:
            return await behavior(request, context)
        except asyncio.CancelledError:
            if stream.refusal is not None:
                # Whatever is on its way to the caller must be sent before the status.
                await asyncio.sleep(_SENT_S)
                raise stream.refusal.with_traceback(None) from None
            raise
        finally:
            self._streams.discard(stream)

    async def _caller(self, context: Context, name: str) -> Identity:
        """Return who calls the method `name`; "" stands for a closed method."""
        token = _token_in(context.invocation_metadata())
        if not token:
            certified = self._certificates.identity(context) if self._certificates else None
            if certified is not None:
                return certified
            raise Unauthenticated(
                "TOKEN_MISSING",
                "this call has no token: send one as `authorization: Bearer <token>`, or set TRADEWIND_TOKEN",
            )
        for each in self._service_tokens:
            if hmac.compare_digest(token.encode(), each):
                return SERVICE
        digest = digest_of(token)
        if digest is None:
            raise refused("TOKEN_INVALID")
        known = self._known.get(digest)
        if known is None or known.until <= time.monotonic():
            try:
                return await self._ask(digest)
            except Unavailable:
                return self._last_known(known, name)
        if isinstance(known.answer, Unauthenticated):
            raise known.answer.with_traceback(None)
        return known.answer

    def _last_known(self, known: _Known | None, name: str) -> Identity:
        answer = known.answer if known is not None and known.until + STALE_S > time.monotonic() else None
        # Running work must go on: workers must be able to come back, and to say that they are alive.
        works = isinstance(answer, Identity) and answer.role is Role.WORKER and self._on_outage != "refuse"
        if isinstance(answer, Identity) and (works or self._goes_on(name)):
            return answer
        raise Unavailable(
            "PEER_UNAVAILABLE", "the access service cannot be reached to check your token; try again", _AGAIN_S
        )

    async def _ask(self, digest: str) -> Identity:
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.get_running_loop().create_task(self._look_up(digest))
            asking.add_done_callback(lambda done: self._asked(digest, done))
        # One cancelled call must not take the answer away from the others.
        return await asyncio.shield(asking)

    def _asked(self, digest: str, done: "asyncio.Task[Identity]") -> None:
        if self._asking.get(digest) is done:
            del self._asking[digest]
        if not done.cancelled():
            done.exception()

    async def _look_up(self, digest: str) -> Identity:
        asking = asyncio.current_task()
        answer: Identity | Unauthenticated
        try:
            answer = await self._authority.authorize(digest)
        except Unauthenticated as refusal:
            answer = refusal
        # The answer may miss a change that came in the meantime: then the next call asks again.
        if self._asking.get(digest) is asking:
            self._known.pop(digest, None)
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[digest] = _Known(answer, time.monotonic() + self._cache_s)
        if isinstance(answer, Unauthenticated):
            raise answer
        return answer

    def _changed(self, user_id: str | None) -> None:
        """Ask again about the tokens of a user, or of all users for None."""
        self._changes += 1
        self._asking.clear()
        if user_id is None:
            # Answers are kept for an outage; outside of one they are asked for again before use.
            now = time.monotonic()
            self._known = {digest: replace(known, until=min(known.until, now)) for digest, known in self._known.items()}
        else:
            self._known = {
                digest: known
                for digest, known in self._known.items()
                if isinstance(known.answer, Unauthenticated) or known.answer.user_id != user_id
            }
        self._doubt(each for each in self._streams if user_id in (None, each.identity.user_id))

    def _doubt(self, streams: Iterable[_Stream]) -> None:
        """Check again who has opened these streams."""
        doubted = [each for each in streams if each.identity.digest]
        if doubted:
            self._tasks.begin(self._look_again(doubted))

    def _look_at_unsure(self) -> None:
        unsure, self._unsure, self._again = self._unsure & self._streams, set(), None
        self._doubt(unsure)

    async def _look_again(self, streams: Sequence[_Stream]) -> None:
        opened: dict[str, list[_Stream]] = {}
        for stream in streams:
            opened.setdefault(stream.identity.digest, []).append(stream)
        tokens = list(opened.items())
        for first in range(0, len(tokens), _ASKED_AT_ONCE):
            await asyncio.gather(*(self._look_at(*each) for each in tokens[first : first + _ASKED_AT_ONCE]))
        if self._unsure and self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._look_at_unsure)

    async def _look_at(self, digest: str, streams: Sequence[_Stream]) -> None:
        """Ask about one token; end the streams opened with it if it is revoked or its role has changed."""
        now: Identity | Unauthenticated
        try:
            now = await self._ask(digest)
        except Unauthenticated as refusal:
            now = refusal
        except Unavailable:
            # They stay open until the authority can be asked: this change will not be announced again.
            self._unsure.update(streams)
            return
        for stream in streams:
            if isinstance(now, Unauthenticated):
                stream.refusal = now
            elif now.role is not stream.identity.role:
                stream.refusal = Unauthenticated(
                    "TOKEN_INVALID", f"your role has changed from {stream.identity.role} to {now.role}: call again"
                )
            if stream.refusal is not None and stream in self._streams:
                _log.info("stream_ended", user_id=stream.identity.user_id, why=str(stream.refusal))
                stream.task.cancel()


def _too_small(identity: Identity, allowed: Rule, name: str) -> PermissionDenied:
    return PermissionDenied(
        "ROLE_TOO_SMALL",
        f'{name} needs the role {allowed.open_to()}, but "{identity.user_id}" has the role {identity.role}: '
        "ask an admin for it",
        {"role": identity.role, "needed": allowed.open_to(), "user_id": identity.user_id},
    )


def _name_caller(request: Any, identity: Identity) -> None:
    """Write the caller into a request: as `by` if it names nobody, and as the `user_id` who is meant.

    Raises PermissionDenied when a user names another user as the latter.
    """
    fields = request.DESCRIPTOR.fields_by_name
    if "by" in fields and request.by in UNNAMED and identity.role is not Role.SERVICE:
        request.by = identity.user_id
    if "user_id" in fields and not identity.role.sees_all:
        request.user_id = user_meant(request.user_id)


def _token_in(metadata: Any) -> str:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            kind, _, token = value.partition(" ")
            return token.strip() if kind.lower() == "bearer" else ""
    return ""
