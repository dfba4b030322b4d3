"""The use cases of the access service."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from tradewind.access.domain.day import Day, day_of
from tradewind.access.domain.session import MAX_SESSIONS, Draft, Session, SessionKind, User
from tradewind.access.ports import Authorized, Changes, QuotaCounts, Refusal, SessionStore, Stores, UserStore
from tradewind.server.access.authority import Changed, Reservation
from tradewind.server.access.identity import Identity
from tradewind.server.access.refusals import refusal_for
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of, is_digest, new_token
from tradewind.server.clock import Clock
from tradewind.server.faults import Exhausted, FailedPrecondition, InvalidInput, NotFound, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.partitions import PARTITIONS
from tradewind.server.rates import Rate
from tradewind.server.schedules.grids import read_zone

_log = structlog.get_logger(__name__)

MAX_LABEL = 128
_USERS_PER_PAGE = 500
_MAX_ZONES = 10_000
"""How many users' time zones are remembered, if they are not UTC."""
RESERVED = ("default", "service")
"""Names that no user may have: the one that clients send when they name no user, and that of the servers."""
REFUSAL_REASONS = {Refusal.UNKNOWN: "TOKEN_INVALID", Refusal.EXPIRED: "TOKEN_EXPIRED"}


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a session lives, how long while idle, and how long a token may live, in milliseconds."""

    session: int = 86_400_000
    idle: int = 7_200_000
    token: int = 90 * 86_400_000


class OpenSessions:
    """Gives out tokens."""

    def __init__(self, sessions: SessionStore, lifetimes: Lifetimes) -> None:
        self._sessions = sessions
        self._lifetimes = lifetimes

    async def login(self, user_id: str, label: str) -> tuple[str, Session]:
        """Begin a session; return its token and the session. Raises InvalidInput, NotFound, Exhausted."""
        lifetimes = self._lifetimes
        draft = Draft(user_id, SessionKind.LOGIN, lifetimes.session, lifetimes.idle, label)
        return await self._open(draft, None, [])

    async def token(self, user_id: str, label: str, lifetime_ms: int, role: Role | None) -> tuple[str, Session]:
        """Make a token for a program that is valid for `lifetime_ms`, or for the longest time allowed when that is 0.

        With `role`, a user who is not on record is put there. Raises InvalidInput, NotFound, Exhausted, and
        FailedPrecondition when the user has another role.
        """
        longest_ms = self._lifetimes.token
        faults = []
        if not 0 <= lifetime_ms <= longest_ms:
            faults.append(Violation("lifetime", f"must be 0 to {longest_ms // 1000} s, is {lifetime_ms / 1000:g} s"))
        if role is not None and user_id in RESERVED:
            faults.append(_reserved_name("user_id", user_id))
        return await self._open(Draft(user_id, SessionKind.TOKEN, lifetime_ms or longest_ms, 0, label), role, faults)

    async def refresh(self, digest: str, user_id: str) -> tuple[str, Session]:
        """Replace a token with a new one. Raises NotFound."""
        token = new_token(user_id)
        made = await self._sessions.replace(digest, _digest(token))
        if isinstance(made, Refusal):
            raise NotFound("session", digest[:20])
        return token, made

    async def _open(self, draft: Draft, role: Role | None, faults: list[Violation]) -> tuple[str, Session]:
        fault = check_identifier("user_id", draft.user_id)
        if fault is not None:
            faults.append(fault)
        if len(draft.label) > MAX_LABEL:
            faults.append(Violation("label", f"must have at most {MAX_LABEL} characters, has {len(draft.label)}"))
        if faults:
            raise InvalidInput(faults)
        token = new_token(draft.user_id)
        made = await self._sessions.open(_digest(token), draft, role)
        if isinstance(made, Session):
            return token, made
        if made is Refusal.UNKNOWN_USER:
            raise NotFound("user", draft.user_id)
        if made is Refusal.OTHER_ROLE:
            message = f'user "{draft.user_id}" has a role other than {role}: change it first (SetUser)'
            raise FailedPrecondition("WRONG_STATUS", message, f"users/{draft.user_id}")
        message = f'user "{draft.user_id}" already has the maximum of {MAX_SESSIONS} sessions and tokens: revoke some'
        raise Exhausted("QUEUE_FULL", message, 60.0)


async def revoke(sessions: SessionStore, user_id: str, session_id: str) -> None:
    """End a session. Raises InvalidInput, NotFound."""
    check_identifiers(user_id=user_id, session_id=session_id)
    if not await sessions.close(user_id, session_id):
        raise NotFound("session", session_id)


async def set_user(users: UserStore, user_id: str, role: Role | None, time_zone: str = "") -> User:
    """Put a user on record, or change the role, and the IANA time zone unless that is "". Raises InvalidInput."""
    faults = [] if (fault := check_identifier("user.user_id", user_id)) is None else [fault]
    if user_id in RESERVED:
        faults.append(_reserved_name("user.user_id", user_id))
    if role is None or role is Role.SERVICE:
        faults.append(Violation("user.role", "is required; use ROLE_ADMIN, ROLE_OPERATOR, ROLE_USER or ROLE_WORKER"))
    if time_zone:
        try:
            read_zone(time_zone)
        except ValueError as error:
            faults.append(Violation("user.time_zone", str(error)))
    if faults or role is None:
        raise InvalidInput(faults)
    return await users.set(user_id, role, time_zone)


async def get_user(users: UserStore, user_id: str) -> User:
    """Return a user. Raises InvalidInput, NotFound."""
    check_identifiers(user_id=user_id)
    user = await users.find(user_id)
    if user is None:
        raise NotFound("user", user_id)
    return user


async def list_users(
    users: UserStore, after: tuple[int, str] | None, limit: int
) -> tuple[Sequence[User], tuple[int, str] | None]:
    """Return users, and the partition and id after which the next page begins, None at the end."""
    partition, last = after or (0, "")
    found: list[User] = []
    while partition < PARTITIONS:
        some = await users.list(partition, last, limit - len(found))
        found += some
        if len(found) == limit:
            return found, (partition, found[-1].user_id)
        partition, last = partition + 1, ""
    return found, None


async def has_admin(users: UserStore) -> bool:
    """Say whether any user on record is an admin."""
    after: tuple[int, str] | None = None
    while True:
        found, after = await list_users(users, after, _USERS_PER_PAGE)
        if any(user.role is Role.ADMIN for user in found):
            return True
        if after is None:
            return False


def check_identifiers(**named: str) -> None:
    """Check identifiers. Raises InvalidInput with every fault."""
    faults = [fault for name, value in named.items() if (fault := check_identifier(name, value)) is not None]
    if faults:
        raise InvalidInput(faults)


class DailyQuotas:
    """Counts the calls of users in a day of their own time zone; `limits` holds the quotas by endpoint.

    A time zone that another replica, with newer tzdata, has accepted may be unknown here: its days are those of UTC.
    """

    def __init__(self, users: UserStore, counts: QuotaCounts, clock: Clock, limits: Mapping[str, int]) -> None:
        self._users = users
        self._counts = counts
        self._clock = clock
        self._limits = limits
        self._zones: dict[str, str] = {}
        self._unknown_zones: set[str] = set()

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        """Count calls for the present day, if it then has at most `quota` and `rate` admits them.

        The store is asked once, or again if the user's time zone is not the one remembered here.
        """
        zone = self._zones.get(user_id, "UTC")
        while True:
            day = self._day(zone)
            reserved = await self._counts.reserve(user_id, endpoint, day, quota, calls, rate)
            if not reserved.time_zone:
                break
            zone = self._remember_zone(user_id, reserved.time_zone)
        if reserved.wait_ms:
            return Reservation(day.date, zone, reserved.wait_ms / 1000, rate_limited=True)
        return Reservation(day.date, zone, day.left_ms / 1000 if reserved.full else 0)

    def _remember_zone(self, user_id: str, zone: str) -> str:
        self._zones.pop(user_id, None)
        if len(self._zones) >= _MAX_ZONES:
            del self._zones[next(iter(self._zones))]
        self._zones[user_id] = zone
        return zone

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        """Take calls off the count of a day."""
        await self._counts.refund(user_id, endpoint, date, calls)

    async def used(self, user_id: str) -> tuple[User, Day, Mapping[str, tuple[int, int]]]:
        """Return a user, their present day, and by endpoint how many calls of that day are used and how many allowed.

        Only users with the role user have quotas. Raises InvalidInput, NotFound.
        """
        user = await get_user(self._users, user_id)
        day = self._day(user.time_zone)
        if user.role is not Role.USER or not self._limits:
            return user, day, {}
        used = await self._counts.used(user_id, day.date)
        return user, day, {endpoint: (used.get(endpoint, 0), limit) for endpoint, limit in sorted(self._limits.items())}

    def _day(self, time_zone: str) -> Day:
        now_ms = self._clock.now_ms()
        try:
            return day_of(time_zone, now_ms)
        except ValueError as error:
            if time_zone not in self._unknown_zones:
                self._unknown_zones.add(time_zone)
                hint = "the calls of its users count by UTC here; update tzdata on this machine"
                _log.error("time_zone_unknown", time_zone=time_zone, error=str(error), hint=hint)
            # It keeps the user's time zone, since the store counts for days of no other.
            return replace(day_of("UTC", now_ms), time_zone=time_zone)


class LocalAuthority:
    """Implements Authority for the access service itself, and for services in the same process."""

    def __init__(self, stores: Stores, listeners: "Listeners", quotas: DailyQuotas) -> None:
        self._stores = stores
        self._quotas = quotas
        self._listeners = listeners

    async def authorize(self, digest: str) -> Identity:
        found = await self.find(digest)
        if isinstance(found, Refusal):
            raise refusal_for(REFUSAL_REASONS[found])
        return Identity(found.user_id, found.role, found.session_id, digest)

    async def find(self, digest: str) -> Authorized | Refusal:
        """Return the user a token belongs to, or why it is not valid."""
        if not is_digest(digest):
            raise InvalidInput(
                [Violation("digest", "must be 66 hexadecimal digits, of which the first two name a partition")]
            )
        return await self._stores.sessions.authorize(digest)

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int) -> float:
        return await self._stores.calls.admit(user_id, endpoint, rate, calls) / 1000

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        return await self._quotas.reserve(user_id, endpoint, quota, calls, rate)

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        await self._quotas.refund(user_id, endpoint, date, calls)

    async def watch(self, changed: Changed) -> None:
        with self._listeners.listening(changed):
            await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing: the stores belong to the service."""


class Listeners:
    """All listeners for changes in this process, over one subscription."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._callbacks: set[Changed] = set()
        self._unsubscribe: Callable[[], None] | None = None
        self._open = asyncio.Event()

    async def start(self) -> None:
        """Subscribe; waits for as long as the store is away."""
        self._unsubscribe = await self._changes.subscribe(self._notify, lambda: self._notify(None))
        self._open.set()
        self._notify(None)

    def stop(self) -> None:
        """Unsubscribe."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    def listening(self, on_change: Changed) -> "_Listening":
        """Return a context in which `on_change` is called for each change, and with None once no more can be missed."""
        return _Listening(self, on_change)

    def add(self, on_change: Changed) -> None:
        """Call `on_change` for each change from now on."""
        self._callbacks.add(on_change)
        if self._open.is_set():
            on_change(None)

    def remove(self, on_change: Changed) -> None:
        """Call `on_change` no more."""
        self._callbacks.discard(on_change)

    def _notify(self, user_id: str | None) -> None:
        for on_change in list(self._callbacks):
            on_change(user_id)


class _Listening:
    def __init__(self, listeners: Listeners, on_change: Changed) -> None:
        self._listeners = listeners
        self._on_change = on_change

    def __enter__(self) -> None:
        self._listeners.add(self._on_change)

    def __exit__(self, *_raised: object) -> None:
        self._listeners.remove(self._on_change)


def _digest(token: str) -> str:
    digest = digest_of(token)
    assert digest is not None
    return digest


def _reserved_name(path: str, user_id: str) -> Violation:
    return Violation(path, f'"{user_id}" is a reserved name; choose another one')
