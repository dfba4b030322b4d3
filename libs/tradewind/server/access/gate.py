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
from tradewind.server.access.identity import SERVICE, UNNAMED, Identity, effective_user_id, require_own, set_identity
from tradewind.server.access.limits import Limits
from tradewind.server.access.metering import counted_calls, set_meter
from tradewind.server.access.methods import OPEN, Rule, is_read, rule
from tradewind.server.access.refusals import refusal_for
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
_CACHE_SIZE = 10_000
_RETRY_S = 1.0
_FLUSH_S = 0.1
_MAX_CONCURRENT_LOOKUPS = 20

_log = structlog.get_logger(__name__)


@runtime_checkable
class OwnerLookup(Protocol):
    """A service that knows who owns the things that a request names."""

    async def owners(self, request: Any) -> Collection[str]:
        """Return the owners of the things that a request names and that exist."""
        ...


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
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
        owner_lookups: Mapping[str, OwnerLookup] | None = None,
        rates: Mapping[str, Rate] | None = None,
        quotas: Mapping[str, int] | None = None,
        certificates: CertificateRoles | None = None,
    ) -> None:
        """Take `owner_lookups` by the names of their gRPC services, `rates` and daily `quotas` by method."""
        self._limits = Limits(authority, rates or {}, quotas or {}, self._passes_in_outage)
        self._authority = authority
        self._service_tokens = [each.encode() for each in service_tokens]
        self._certificates = certificates
        self._cache_s = cache_s
        self._on_outage = on_outage
        self._owner_lookups = dict(owner_lookups or {})
        self._cache: dict[str, _CachedAnswer] = {}
        self._lookups: dict[str, asyncio.Task[Identity]] = {}
        self._streams: set[_Stream] = set()
        self._unverified: set[_Stream] = set()
        self._recheck_timer: asyncio.TimerHandle | None = None
        self._change_count = 0
        self._tasks = SideTasks()
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen for changes."""
        self._watching = asyncio.get_running_loop().create_task(self._authority.watch(self._on_change))

    async def stop(self) -> None:
        """Stop listening for changes."""
        if self._watching is not None:
            await end_tasks([self._watching, *self._tasks])
            self._watching = None
        if self._recheck_timer is not None:
            self._recheck_timer.cancel()
        await self._authority.close()

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Surround the calls of one method."""
        if method.startswith(OPEN):
            return behavior
        found = rule(method)
        service, _, name = method[1:].partition("/")
        owner_lookups = self._owner_lookups.get(service)

        async def closed(request: Any, context: Context) -> Any:
            await self._identify_caller(context, "")
            raise PermissionDenied("METHOD_CLOSED", f"{name} is closed: no role may call it")

        if found is None:
            return closed
        allowed = found

        async def admitted(request: Any, context: Context) -> Any:
            changes = self._change_count
            identity = await self._identify_caller(context, name)
            if not allowed.admits(identity.role):
                raise _role_too_small(identity, allowed, name)
            set_identity(identity)
            if isinstance(request, Message):
                _name_caller(request, identity)
                if allowed.owned and not identity.role.sees_all:
                    if owner_lookups is None:
                        raise PermissionDenied(
                            "METHOD_CLOSED",
                            f"{name} cannot tell who owns what it names, so users may not call it: ask an operator",
                        )
                    require_own(await owner_lookups.owners(request))
            if self._limits and identity.role is Role.USER:
                set_meter(self._limits)
                async with counted_calls(name):
                    return await served(identity, changes, request, context)
            return await served(identity, changes, request, context)

        async def served(identity: Identity, changes: int, request: Any, context: Context) -> Any:
            if allowed.streaming:
                return await self._serve_stream(identity, changes, behavior, request, context)
            return await behavior(request, context)

        return admitted

    def _passes_in_outage(self, name: str) -> bool:
        return self._on_outage == "all" or (self._on_outage == "reads" and is_read(name))

    async def _serve_stream(
        self, identity: Identity, changes: int, behavior: Behavior, request: Any, context: Context
    ) -> Any:
        """Serve a stream of a caller who was identified when there had been `changes` changes."""
        task = asyncio.current_task()
        assert task is not None
        stream = _Stream(identity, task)
        self._streams.add(stream)
        if changes != self._change_count:
            # A change that came in the meantime did not find this stream among the open ones.
            self._start_recheck([stream])
        try:
            return await behavior(request, context)
        except asyncio.CancelledError:
            if stream.refusal is not None:
                # Whatever is on its way to the caller must be sent before the status.
                await asyncio.sleep(_FLUSH_S)
                raise stream.refusal.with_traceback(None) from None
            raise
        finally:
            self._streams.discard(stream)

    async def _identify_caller(self, context: Context, name: str) -> Identity:
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
            raise refusal_for("TOKEN_INVALID")
        known = self._cache.get(digest)
        if known is None or known.until <= time.monotonic():
            try:
                return await self._identity_of(digest)
            except Unavailable:
                return self._last_known(known, name)
        if isinstance(known.answer, Unauthenticated):
            raise known.answer.with_traceback(None)
        return known.answer

    def _last_known(self, known: _CachedAnswer | None, name: str) -> Identity:
        answer = known.answer if known is not None and known.until + STALE_S > time.monotonic() else None
        # Running work must go on: workers must be able to come back, and to say that they are alive.
        is_worker = isinstance(answer, Identity) and answer.role is Role.WORKER and self._on_outage != "refuse"
        if isinstance(answer, Identity) and (is_worker or self._passes_in_outage(name)):
            return answer
        raise Unavailable(
            "PEER_UNAVAILABLE", "the access service cannot be reached to check your token; try again", _RETRY_S
        )

    async def _identity_of(self, digest: str) -> Identity:
        lookup = self._lookups.get(digest)
        if lookup is None:
            lookup = self._lookups[digest] = asyncio.get_running_loop().create_task(self._fetch_identity(digest))
            lookup.add_done_callback(lambda done: self._lookup_done(digest, done))
        # One cancelled call must not take the answer away from the others.
        return await asyncio.shield(lookup)

    def _lookup_done(self, digest: str, done: "asyncio.Task[Identity]") -> None:
        if self._lookups.get(digest) is done:
            del self._lookups[digest]
        if not done.cancelled():
            done.exception()

    async def _fetch_identity(self, digest: str) -> Identity:
        lookup = asyncio.current_task()
        answer: Identity | Unauthenticated
        try:
            answer = await self._authority.authorize(digest)
        except Unauthenticated as refusal:
            answer = refusal
        # The answer may miss a change that came in the meantime: then the next call asks again.
        if self._lookups.get(digest) is lookup:
            self._cache.pop(digest, None)
            if len(self._cache) >= _CACHE_SIZE:
                del self._cache[next(iter(self._cache))]
            self._cache[digest] = _CachedAnswer(answer, time.monotonic() + self._cache_s)
        if isinstance(answer, Unauthenticated):
            raise answer
        return answer

    def _on_change(self, user_id: str | None) -> None:
        """Ask again about the tokens of a user, or of all users for None."""
        self._change_count += 1
        self._lookups.clear()
        if user_id is None:
            # Answers are kept for an outage; outside of one they are asked for again before use.
            now = time.monotonic()
            self._cache = {digest: replace(known, until=min(known.until, now)) for digest, known in self._cache.items()}
        else:
            self._cache = {
                digest: known
                for digest, known in self._cache.items()
                if isinstance(known.answer, Unauthenticated) or known.answer.user_id != user_id
            }
        self._start_recheck(each for each in self._streams if user_id in (None, each.identity.user_id))

    def _start_recheck(self, streams: Iterable[_Stream]) -> None:
        """Check again who has opened these streams."""
        rechecked = [each for each in streams if each.identity.digest]
        if rechecked:
            self._tasks.begin(self._recheck_streams(rechecked))

    def _recheck_unverified(self) -> None:
        unverified, self._unverified, self._recheck_timer = self._unverified & self._streams, set(), None
        self._start_recheck(unverified)

    async def _recheck_streams(self, streams: Sequence[_Stream]) -> None:
        by_token: dict[str, list[_Stream]] = {}
        for stream in streams:
            by_token.setdefault(stream.identity.digest, []).append(stream)
        tokens = list(by_token.items())
        for first in range(0, len(tokens), _MAX_CONCURRENT_LOOKUPS):
            await asyncio.gather(
                *(self._recheck_token(*each) for each in tokens[first : first + _MAX_CONCURRENT_LOOKUPS])
            )
        if self._unverified and self._recheck_timer is None:
            self._recheck_timer = asyncio.get_running_loop().call_later(_RETRY_S, self._recheck_unverified)

    async def _recheck_token(self, digest: str, streams: Sequence[_Stream]) -> None:
        """Ask about one token; end the streams opened with it if it is revoked or its role has changed."""
        now: Identity | Unauthenticated
        try:
            now = await self._identity_of(digest)
        except Unauthenticated as refusal:
            now = refusal
        except Unavailable:
            # They stay open until the authority can be asked: this change will not be announced again.
            self._unverified.update(streams)
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


def _role_too_small(identity: Identity, allowed: Rule, name: str) -> PermissionDenied:
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
        request.user_id = effective_user_id(request.user_id)


def _token_in(metadata: Any) -> str:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            kind, _, token = value.partition(" ")
            return token.strip() if kind.lower() == "bearer" else ""
    return ""
