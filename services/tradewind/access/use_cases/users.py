"""Users: puts them on record, and finds them."""

from collections.abc import Sequence

from tradewind.access.domain.session import User
from tradewind.access.ports import UserStore
from tradewind.access.use_cases.reserved_names import reserved_name
from tradewind.server.access.roles import Role
from tradewind.server.faults import InvalidInput, NotFound, Violation
from tradewind.server.identifiers import check_identifier, require_identifiers
from tradewind.server.partitions import PARTITIONS
from tradewind.server.schedules.grids import read_zone

_USERS_PER_PAGE = 500


async def set_user(
    users: UserStore, user_id: str, role: Role | None, time_zone: str = "", role_faults: Sequence[Violation] = ()
) -> User:
    """Put a user on record, or change the role, and the IANA time zone unless that is "".

    Raises InvalidInput with every fault; `role_faults` are those that were found while the role was read.
    """
    faults = [*role_faults]
    if (fault := check_identifier("user.user_id", user_id)) is not None:
        faults.append(fault)
    faults += reserved_name("user.user_id", user_id)
    if role is None and not role_faults:
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
    require_identifiers(user_id=user_id)
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
