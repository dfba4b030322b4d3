"""Finds out who calls: by a token, whose owner the authority knows, or without one by a certificate."""

import asyncio
import hmac
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal

from tradewind.server.access.authority import Authority
from tradewind.server.access.certificates import CertificateRoles
from tradewind.server.access.identity import SERVICE, Identity
from tradewind.server.access.methods import is_read
from tradewind.server.access.refusals import refusal_for
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of
from tradewind.server.faults import Unauthenticated, Unavailable
from tradewind.server.interception import Context

OnOutage = Literal["refuse", "reads", "all"]
"""Which calls pass with tokens that were good before, while nobody can say whether they still are."""

STALE_S = 300.0
"""How long the last answer about a token still counts while the authority cannot be asked."""
_CACHE_SIZE = 10_000
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    """The last answer about a token, and the time until which it counts."""

    answer: Identity | Unauthenticated
    until: float


@dataclass(frozen=True, slots=True)
class _Found:
    """Whose token a call brings, as found before its message arrived."""

    token: str
    owner: Identity
    forgotten: object


_found: ContextVar[_Found | None] = ContextVar("found", default=None)


class Callers:
    """Identifies callers, and remembers for `cache_s` who owns a token.

    It recognizes `service_tokens` by itself, and also `certificates`, which count only for calls without a token: a
    server that passes on a user's call must not be taken for that user.
    """

    def __init__(
        self,
        authority: Authority,
        service_tokens: Sequence[str],
        certificates: CertificateRoles | None,
        cache_s: float,
        on_outage: OnOutage,
    ) -> None:
        self._authority = authority
        self._service_tokens = [each.encode() for each in service_tokens]
        self._certificates = certificates
        self._cache_s = cache_s
        self._on_outage = on_outage
        self._cache: dict[str, _CachedAnswer] = {}
        self._digests: dict[str, set[str]] = {}
        """The digests in `_cache` by user: a change of one user must not cost a look at the tokens of all."""
        # Apart from the owners: whoever makes up tokens must not displace them.
        self._refusals: dict[str, _CachedAnswer] = {}
        self._lookups: dict[str, asyncio.Task[Identity]] = {}
        self._forgotten = object()
        """Another one after each `forget`."""

    async def identify(self, context: Context, name: str) -> Identity:
        """Return who calls the method `name`; "" stands for a closed method. Raises Unauthenticated, Unavailable."""
        token = _token_in(context.invocation_metadata())
        if not token and self._certificates:
            certified = self._certificates.identity(context)
            if certified is not None:
                return certified
        found = _found.get()
        if found is not None and found.token == token and found.forgotten == self._forgotten:
            return found.owner
        return await self._owner_of_token(token, name)

    async def refusal(self, metadata: Any, name: str) -> Exception | None:
        """Return what `identify` would raise; None also when a certificate may say who calls.

        It is called in the task of the call: `identify` then asks nobody again.
        """
        token = _token_in(metadata)
        if not token and self._certificates:
            return None
        try:
            forgotten = self._forgotten
            _found.set(_Found(token, await self._owner_of_token(token, name), forgotten))
        except Exception as refusal:
            return refusal
        return None

    async def _owner_of_token(self, token: str, name: str) -> Identity:
        if not token:
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
        known = self._cache.get(digest) or self._refusals.get(digest)
        if known is None or known.until <= time.monotonic():
            try:
                return await self.owner_of(digest)
            except Unavailable as outage:
                return self._last_known(known, name, outage)
        if isinstance(known.answer, Unauthenticated):
            raise known.answer.with_traceback(None)
        return known.answer

    async def owner_of(self, digest: str) -> Identity:
        """Ask the authority who owns a token; concurrent calls share one question. Raises as `Authority.authorize`."""
        lookup = self._lookups.get(digest)
        if lookup is None:
            lookup = self._lookups[digest] = asyncio.get_running_loop().create_task(self._fetch_identity(digest))
            lookup.add_done_callback(lambda done: self._lookup_done(digest, done))
        # One cancelled call must not take the answer away from the others.
        return await asyncio.shield(lookup)

    def forget(self, user_id: str | None) -> None:
        """Ask again about the tokens of a user, or of all users for None, before they are used the next time."""
        self._lookups.clear()
        self._forgotten = object()
        if user_id is None:
            # Answers are kept for an outage; outside of one they are asked for again before use.
            now = time.monotonic()
            self._cache = {digest: replace(known, until=min(known.until, now)) for digest, known in self._cache.items()}
            self._refusals.clear()
        else:
            for digest in list(self._digests.get(user_id, ())):
                self._drop(digest)

    def passes_in_outage(self, name: str) -> bool:
        """Say whether calls of a method pass while the authority cannot be asked."""
        return self._on_outage == "all" or (self._on_outage == "reads" and is_read(name))

    def _last_known(self, known: _CachedAnswer | None, name: str, outage: Unavailable) -> Identity:
        answer = known.answer if known is not None and known.until + STALE_S > time.monotonic() else None
        if isinstance(answer, Identity):
            # Running work must go on: workers must be able to come back, and to say that they are alive.
            goes_on = answer.role is Role.WORKER and self._on_outage != "refuse"
            if goes_on or self.passes_in_outage(name):
                return answer
        raise Unavailable("PEER_UNAVAILABLE", f"{outage}, so your token is not checked; try again", _RETRY_S)

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
            self._drop(digest)
            cache = self._refusals if isinstance(answer, Unauthenticated) else self._cache
            if len(cache) >= _CACHE_SIZE:
                self._drop(next(iter(cache)))
            cache[digest] = _CachedAnswer(answer, time.monotonic() + self._cache_s)
            if isinstance(answer, Identity):
                self._digests.setdefault(answer.user_id, set()).add(digest)
        if isinstance(answer, Unauthenticated):
            raise answer
        return answer

    def _drop(self, digest: str) -> None:
        """Forget the answer about a token, if there is one."""
        known = self._cache.pop(digest, None) or self._refusals.pop(digest, None)
        if known is not None and isinstance(known.answer, Identity):
            digests = self._digests[known.answer.user_id]
            digests.remove(digest)
            if not digests:
                del self._digests[known.answer.user_id]


def _token_in(metadata: Any) -> str:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            kind, _, token = value.partition(" ")
            return token.strip() if kind.lower() == "bearer" else ""
    return ""
