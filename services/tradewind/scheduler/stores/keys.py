"""The table of the scheduler's keys; nothing else formats one.

All keys of a partition p = crc32(flow_id) mod 16 share the tag `{f<p>}`:

    flow:<id>                           hash      a flow; until DeleteFlow
    flow:<id>:cycle:<n>:<run>           hash      chain state of a run; up to 7 d after its cycle's last run has ended
    flow:<id>:cycles                    zset      runs `<n>:<run>` of `keep_cycles` cycles, by number, open ones on top
    flow:<id>:firings                   zset      outcomes of the newest 1000 planned times; as long as the flow
    flow:<id>:queued                    zset      up to 100 planned times waiting for a running cycle; as the flow
    flow:<id>:backfills                 zset      ids of the newest 100 backfills; as long as the flow
    flow:<id>:backfill:<id>             hash      a backfill; 7 d after its end
    flow:<id>:backfill:<id>:firings     zset      outcomes of its planned times, up to 10 000; as long as the backfill
    flow:<id>:filling                   zset      open runs: of backfills by id, of sub-flows by 0; as long as the flow
    flow:<id>:revisions                 hash      earlier definitions: the newest 99, and those that open runs use
    flow:<id>:history                   hash      who made these and the current revision, when and why
    flow:<id>:memory                    hash      variables that carry from cycle to cycle, up to 64 KiB; as the flow
    flow:<id>:logs:<n>                  list      lines written for a cycle, if any; newest 100 cycles, 1000 lines each
    flows                               zset      ids of flows, in order
    open                                zset      runs `<id>:<n>:<run>` that have not ended, by their next check
    ends                                zset      ends of runs to publish, up to 10 000
    returns                             zset      ends of runs that nodes of other flows wait for, up to 10 000
    backfills                           zset      backfills `<flow>:<id>` that are under way, by when to look at them
    queued                              zset      flows with planned times that wait, by next try
    outbox                              zset      flows whose schedule must reach the trigger service, by next try
    request:<user>:<flow>:<request_id>  string    first answer to a client's request; as long as it says, up to 24 h
    tombstone:<id>                      string    schedule epoch of a deleted flow; 1 h
    owner                               hash      replica that owns the partition, "" for none, and its epoch
    job:<id>                            hash      a bulk job; 7 d after its end
    jobs                                zset      bulk jobs by creation, the newest 1000; 7 d after the last
    jobs_open                           zset      bulk jobs that have not ended, by creation
    replicas                            zset      replicas present, by when their leases lapse; in partition 0 only
    data_version                        string    version of the data and number of partitions; in partition 0 only

and `changes` is the partition's pub/sub channel: beginnings and ends of runs are published on it, while somebody
listens or, on a cluster, always. On the channel `wake` of partition 0, replicas notify owners of work.
"""

from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.server.redis.acl import AclUser

DEFAULT_PREFIX = "trading_flow"


ACL = AclUser("scheduler", (f"{DEFAULT_PREFIX}:{{f*",), (f"{DEFAULT_PREFIX}:{{f*",))
"""The store user that may use the scheduler's keys and channels, and no others."""


class Keys:
    """Formats the keys of a prefix."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        self._bases = tuple(f"{prefix}:{{f{partition}}}:" for partition in range(PARTITIONS))

    def base(self, partition: int) -> str:
        """Return the prefix of all keys of a partition."""
        return self._bases[partition]

    def data_version(self) -> str:
        """Return the key of the version of the data."""
        return f"{self._bases[0]}data_version"

    def flow(self, flow_id: str) -> str:
        """Return the key of a flow; the keys of its parts begin with it."""
        return f"{self._bases[partition_of(flow_id)]}flow:{flow_id}"

    def run(self, flow_id: str, cycle: int, run: int) -> str:
        """Return the key of a run's chain state."""
        return f"{self._bases[partition_of(flow_id)]}flow:{flow_id}:cycle:{cycle}:{run}"

    def cycles(self, flow_id: str) -> str:
        """Return the key of a flow's index of runs."""
        return f"{self.flow(flow_id)}:cycles"

    def firings(self, flow_id: str) -> str:
        """Return the key of the outcomes of a flow's planned times."""
        return f"{self.flow(flow_id)}:firings"

    def backfills(self, flow_id: str) -> str:
        """Return the key of a flow's index of backfills."""
        return f"{self.flow(flow_id)}:backfills"

    def backfill(self, flow_id: str, backfill_id: int) -> str:
        """Return the key of a backfill."""
        return f"{self.flow(flow_id)}:backfill:{backfill_id}"

    def backfill_firings(self, flow_id: str, backfill_id: int) -> str:
        """Return the key of the outcomes of a backfill's planned times."""
        return f"{self.flow(flow_id)}:backfill:{backfill_id}:firings"

    def filling(self, flow_id: str) -> str:
        """Return the key of a flow's open runs of backfills and sub-flows."""
        return f"{self.flow(flow_id)}:filling"

    def revisions(self, flow_id: str) -> str:
        """Return the key of a flow's older definitions."""
        return f"{self.flow(flow_id)}:revisions"

    def history(self, flow_id: str) -> str:
        """Return the key of the facts about a flow's revisions."""
        return f"{self.flow(flow_id)}:history"

    def memory(self, flow_id: str) -> str:
        """Return the key of the variables that a flow carries from cycle to cycle."""
        return f"{self.flow(flow_id)}:memory"

    def logs(self, flow_id: str, cycle: int) -> str:
        """Return the key of the scheduler's log lines of a cycle."""
        return f"{self.flow(flow_id)}:logs:{cycle}"

    def request(self, flow_id: str, name: str) -> str:
        """Return the key of the first answer to a request about a flow."""
        return f"{self._bases[partition_of(flow_id)]}request:{name}"

    def flows(self, partition: int) -> str:
        """Return the key of a partition's index of flows."""
        return f"{self._bases[partition]}flows"

    def open(self, partition: int) -> str:
        """Return the key of a partition's runs that have not ended."""
        return f"{self._bases[partition]}open"

    def queued(self, partition: int) -> str:
        """Return the key of a partition's flows with planned times that wait."""
        return f"{self._bases[partition]}queued"

    def active_backfills(self, partition: int) -> str:
        """Return the key of a partition's backfills that are under way."""
        return f"{self._bases[partition]}backfills"

    def ends(self, partition: int) -> str:
        """Return the key of a partition's ends of runs to publish."""
        return f"{self._bases[partition]}ends"

    def returns(self, partition: int) -> str:
        """Return the key of a partition's ends of runs that nodes of other flows wait for."""
        return f"{self._bases[partition]}returns"

    def outbox(self, partition: int) -> str:
        """Return the key of a partition's outbox."""
        return f"{self._bases[partition]}outbox"

    def job(self, job_id: str) -> str:
        """Return the key of a bulk job."""
        return f"{self._bases[partition_of(job_id)]}job:{job_id}"

    def jobs(self, partition: int) -> str:
        """Return the key of a partition's index of bulk jobs."""
        return f"{self._bases[partition]}jobs"

    def open_jobs(self, partition: int) -> str:
        """Return the key of a partition's bulk jobs that have not ended."""
        return f"{self._bases[partition]}jobs_open"

    def owner(self, partition: int) -> str:
        """Return the key of a partition's owner."""
        return f"{self._bases[partition]}owner"

    def replicas(self) -> str:
        """Return the key of the replicas present."""
        return f"{self._bases[0]}replicas"

    def channel(self, partition: int) -> str:
        """Return the channel on which changes to the partition's runs are published."""
        return f"{self._bases[partition]}changes"

    def wake(self) -> str:
        """Return the channel on which owners of partitions are notified of work."""
        return f"{self._bases[0]}wake"
