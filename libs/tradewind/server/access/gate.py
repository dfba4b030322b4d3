"""The gate: looks up a method's rule, and lets the caller through or not."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import structlog
from google.protobuf.message import Message

from tradewind.server.access.authority import Authority
from tradewind.server.access.callers import Callers, OnOutage
from tradewind.server.access.certificates import CertificateRoles
from tradewind.server.access.identity import UNNAMED, Identity, effective_user_id, require_own, set_identity
from tradewind.server.access.limits import Limits
from tradewind.server.access.metering import counted_calls, set_meter
from tradewind.server.access.methods import OPEN, Rule, rule
from tradewind.server.access.roles import Role
from tradewind.server.faults import PermissionDenied, Unauthenticated, Unavailable
from tradewind.server.interception import Behavior, Context
from tradewind.server.rates import Rate
from tradewind.server.side_tasks import SideTasks

_RETRY_S = 1.0
_FLUSH_S = 0.1
_MAX_CONCURRENT_LOOKUPS = 20
_MAX_BY = 128
"""The most characters of `by` that services accept; the name in a certificate may have more."""

_log = structlog.get_logger(__name__)


@runtime_checkable
class OwnerLookup(Protocol):
    """A service that knows who owns the things that a request names."""

    async def owners(self, request: Any) -> Collection[str]:
        """Return the owners of the things that a request names and that exist."""
        ...


@dataclass(slots=True, eq=False)
class _Stream:
    """A stream that a caller has opened, or a call that waits; `refusal` says why it is ended."""

    identity: Identity
    task: "asyncio.Task[Any]"
    open: bool = True
    refusal: Exception | None = None


class Gate:
    """Surrounds every call. Raises Unauthenticated, PermissionDenied, and Unavailable when nobody can be asked.

    It asks again who owns a token as soon as the authority reports a change. Only then does it check open streams again
    too, retrying until it gets an answer.
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
        self._callers = Callers(authority, service_tokens, certificates, cache_s, on_outage)
        self._limits = Limits(authority, rates or {}, quotas or {}, self._callers.passes_in_outage)
        self._authority = authority
        self._owner_lookups = dict(owner_lookups or {})
        self._streams: dict[str, set[_Stream]] = {}
        """The open streams by user: a change of one user must not cost a look at those of all."""
        self._unverified: set[_Stream] = set()
        self._recheck_timer: asyncio.TimerHandle | None = None
        self._change_count = 0
        self._tasks = SideTasks()

    def start(self) -> None:
        """Begin to listen for changes."""
        self._tasks.begin(self._authority.watch(self._on_change))

    async def stop(self) -> None:
        """Stop listening for changes."""
        await self._tasks.end()
        if self._recheck_timer is not None:
            self._recheck_timer.cancel()
        await self._authority.close()

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Surround the calls of one method."""
        if method.startswith(OPEN):
            return behavior
        allowed = rule(method)
        service, _, name = method[1:].partition("/")
        if allowed is None:
            return self._closed(name)
        return self._guarded(name, allowed, self._owner_lookups.get(service), behavior)

    async def refusal(self, method: str, metadata: Any) -> Exception | None:
        """Return why a call is refused that nobody who is known makes, before its message arrives; else None."""
        if method.startswith(OPEN):
            return None
        return await self._callers.refusal(metadata, method.rpartition("/")[2] if rule(method) else "")

    def _closed(self, name: str) -> Behavior:
        async def closed(request: Any, context: Context) -> Any:
            await self._callers.identify(context, "")
            raise PermissionDenied("METHOD_CLOSED", f"{name} is closed: no role may call it")

        return closed

    def _guarded(self, name: str, allowed: Rule, owner_lookup: OwnerLookup | None, behavior: Behavior) -> Behavior:
        async def admitted(request: Any, context: Context) -> Any:
            changes = self._change_count
            identity = await self._callers.identify(context, name)
            if not allowed.admits(identity.role):
                raise _role_too_small(identity, allowed, name)
            set_identity(identity)
            if isinstance(request, Message):
                _name_caller(request, identity)
                if allowed.owned and not identity.role.sees_all:
                    if owner_lookup is None:
                        raise PermissionDenied(
                            "METHOD_CLOSED",
                            f"{name} cannot tell who owns what it names, so users may not call it: ask an operator",
                        )
                    require_own(await owner_lookup.owners(request))
            served = behavior
            if self._limits and identity.role is Role.USER:
                set_meter(self._limits)
                served = counted
            if allowed.lasting:
                # Around the count: a call that is ended counts as used, as one that its client cancels.
                return await self._serve_lasting(identity, changes, served, request, context)
            return await served(request, context)

        async def counted(request: Any, context: Context) -> Any:
            async with counted_calls(name):
                return await behavior(request, context)

        return admitted

    async def _serve_lasting(
        self, identity: Identity, changes: int, behavior: Behavior, request: Any, context: Context
    ) -> Any:
        """Serve a lasting call of a caller who was identified when there had been `changes` changes."""
        task = asyncio.current_task()
        assert task is not None
        stream = _Stream(identity, task)
        streams = self._streams.setdefault(identity.user_id, set())
        streams.add(stream)
        if changes != self._change_count:
            # A change that came in the meantime did not find this call among the open ones.
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
            stream.open = False
            streams.remove(stream)
            if not streams:
                del self._streams[identity.user_id]

    def _on_change(self, user_id: str | None) -> None:
        """Ask again about the tokens of a user, or of all users for None."""
        self._change_count += 1
        self._callers.forget(user_id)
        concerned = self._streams.values() if user_id is None else [self._streams.get(user_id, set())]
        self._start_recheck(chain.from_iterable(concerned))

    def _start_recheck(self, streams: Iterable[_Stream]) -> None:
        """Check again who has opened these streams."""
        rechecked = [each for each in streams if each.identity.digest]
        if rechecked:
            self._tasks.begin(self._recheck_streams(rechecked))

    def _recheck_unverified(self) -> None:
        unverified, self._unverified, self._recheck_timer = self._unverified, set(), None
        self._start_recheck(each for each in unverified if each.open)

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
            now = await self._callers.owner_of(digest)
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
            if stream.refusal is not None and stream.open:
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
        request.by = identity.user_id[:_MAX_BY]
    if "user_id" in fields and not identity.role.sees_all:
        request.user_id = effective_user_id(request.user_id)
