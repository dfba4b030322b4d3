"""A running trigger service, and a receiver that speaks the stream's messages and does nothing on its own."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as pb2_grpc
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import ACL

KEY = "flow"
"""The partition key of triggers that are given none."""

ALL = range(PARTITIONS)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def timestamp(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def ms_of(time: Timestamp) -> int:
    return time.seconds * 1000 + time.nanos // 1_000_000


def duration(ms: int) -> Duration:
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def once(at_ms: int) -> trigger_pb2.Schedule:
    return trigger_pb2.Schedule(once=trigger_pb2.OnceSchedule(at=timestamp(at_ms)))


def every(interval_ms: int, anchor_ms: int) -> trigger_pb2.Schedule:
    interval = trigger_pb2.IntervalSchedule(interval=duration(interval_ms), anchor=timestamp(anchor_ms))
    return trigger_pb2.Schedule(interval=interval)


class Receiver:
    """One ReceiveDue stream; collects the messages that come."""

    def __init__(self, stub: "pb2_grpc.TriggerServiceAsyncStub") -> None:
        self._call: Any = stub.ReceiveDue()
        self._reading = asyncio.create_task(self._read())
        self.messages: list[pb2.ReceiveDueResponse] = []
        self.arrivals: list[tuple[trigger_pb2.DueTrigger, int]] = []
        self.error: grpc.aio.AioRpcError | None = None
        self.ended = False

    @property
    def due(self) -> list[trigger_pb2.DueTrigger]:
        return [each for each, _ in self.arrivals]

    @property
    def ids(self) -> list[str]:
        return [each.trigger.trigger_id for each in self.due]

    @property
    def lost(self) -> list[str]:
        return [token for message in self.messages for token in message.lost_tokens]

    @property
    def ended_partitions(self) -> list[int]:
        return [partition for message in self.messages for partition in message.ended_partitions]

    async def send(self, **fields: Any) -> None:
        """Send one message."""
        await self._call.write(pb2.ReceiveDueRequest(**fields))

    async def subscribe(self, partitions: Iterable[int] = ALL, epoch: int = 1, **fields: Any) -> None:
        """Ask for partitions."""
        wanted = [pb2.PartitionSubscription(partition=partition, epoch=epoch) for partition in partitions]
        await self.send(receiver="test", subscribe=wanted, **fields)

    async def ack(self, *due: trigger_pb2.DueTrigger, **fields: Any) -> None:
        """Acknowledge these triggers in one message."""
        await self.send(acks=[pb2.DueTriggerAck(token=each.token, **fields) for each in due])

    async def wait_for_due(self, count: int = 1, timeout: float = 30) -> list[trigger_pb2.DueTrigger]:
        """Wait until `count` due triggers have come, and return all of them."""
        await until(lambda: len(self.due) >= count, f"{count} due triggers came", timeout)
        return self.due

    async def wait_for_error(self) -> grpc.aio.AioRpcError:
        """Wait until the server has ended the stream with an error, and return it."""
        await until(lambda: self.error, "the stream failed")
        assert self.error is not None
        return self.error

    async def finish(self) -> None:
        """End this side of the stream in good order, and wait for the other side to end."""
        await self._call.done_writing()
        await until(lambda: self.ended, "the server has ended the stream")

    async def close(self) -> None:
        """Break off the stream."""
        self._call.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for message in self._call:
                self.messages.append(message)
                self.arrivals += [(each, now_ms()) for each in message.due]
        except grpc.aio.AioRpcError as error:
            self.error = error
        self.ended = True


class Replica:
    """A running trigger service and a channel to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.channel = open_channel(server.address)
        self.stub = pb2_grpc.TriggerServiceStub(self.channel)

    async def save(
        self, id: str, schedule: trigger_pb2.Schedule, *, key: str = KEY, epoch: int = 1, payload: str = "{}"
    ) -> trigger_pb2.Trigger:
        trigger = trigger_pb2.Trigger(
            trigger_id=id, partition_key=key, schedule=schedule, payload_json=payload, epoch=epoch
        )
        return (await self.stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger))).trigger

    async def save_spread(self, count: int, at_ms: int) -> list[str]:
        """Save `count` triggers that are due at one instant, spread over all partitions."""
        ids = [f"t{index:04}" for index in range(count)]
        await asyncio.gather(*(self.save(id, once(at_ms), key=id) for id in ids))
        return ids

    async def find(self, id: str, key: str = KEY) -> trigger_pb2.Trigger:
        return (await self.stub.FindTrigger(pb2.FindTriggerRequest(trigger_id=id, partition_key=key))).trigger

    async def stop(self) -> None:
        await self.channel.close()
        await self.server.stop()


class Cast:
    """All participants of a test, over one store."""

    def __init__(self, store: RedisServer) -> None:
        self.store = store
        self._replicas: list[Replica] = []
        self._receivers: list[Receiver] = []

    async def replica(self, **settings: Any) -> Replica:
        """Start a trigger service as the store's user of that name."""
        service = TriggerService(TriggerSettings(store_url=self.store.url(ACL.name), **settings))
        server = Server([service], drain_s=2)
        await server.start()
        self._replicas.append(Replica(server))
        return self._replicas[-1]

    async def receiver(
        self, replica: Replica, partitions: Iterable[int] = (partition_of(KEY),), epoch: int = 1, **fields: Any
    ) -> Receiver:
        """Open a stream and subscribe."""
        receiver = Receiver(replica.stub)
        self._receivers.append(receiver)
        await receiver.subscribe(partitions, epoch, **fields)
        return receiver

    async def listener(self, replica: Replica, queue: str, **fields: Any) -> Receiver:
        """Open a stream of a queue."""
        receiver = Receiver(replica.stub)
        self._receivers.append(receiver)
        await receiver.send(receiver="test", queue=queue, **fields)
        return receiver

    async def stop_all(self) -> None:
        for receiver in self._receivers:
            await receiver.close()
        for replica in self._replicas:
            await replica.stop()


def reason(error: grpc.aio.AioRpcError) -> str:
    """Return the reason in an error."""
    info = _detail(error, error_details_pb2.ErrorInfo())
    return str(info.reason)


def violations(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """Return the messages of an error by field."""
    found = _detail(error, error_details_pb2.BadRequest()).field_violations
    return {each.field: each.description for each in found}


def retry_delay_ms(error: grpc.aio.AioRpcError) -> int:
    """Return the retry delay in an error."""
    delay = _detail(error, error_details_pb2.RetryInfo()).retry_delay
    return int(delay.ToMilliseconds())


def _detail(error: grpc.aio.AioRpcError, into: Any) -> Any:
    status: Any = rpc_status.from_call(error)  # type: ignore[arg-type]
    details: Sequence[Any] = status.details
    assert any(detail.Unpack(into) for detail in details), status
    return into
