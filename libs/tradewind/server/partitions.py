"""Which partition a flow belongs to and which shard a user belongs to; both are fixed in the stored data."""

from zlib import crc32

PARTITIONS = 16
"""How many partitions flows are spread over. Changing it needs a migration of the stored keys."""
MAX_EPOCH = 2**53 - 1
"""The highest epoch of an owner: the store's numbers are not exact beyond this."""


def partition_of(flow_id: str) -> int:
    """Return the partition of a flow, 0 to 15."""
    return crc32(flow_id.encode()) % PARTITIONS


def shard_of(user_id: str, shards: int) -> int:
    """Return the shard of a user, 0 to `shards` - 1."""
    return crc32(user_id.encode()) % shards
