"""A name that comes to stand for other servers, like the name of pods that are replaced."""

import asyncio
import os
import subprocess
import sys
from typing import Any

from tests.ports import free_port
from tests.rpc.server.echo_service import NAME, EchoService
from tradewind.server.bootstrap import Server

PROGRAM = """
import asyncio, sys
from tradewind.tls.channels import open_channel

async def main():
    async with open_channel(sys.argv[1], None, ()) as channel:
        say = channel.unary_unary(sys.argv[2])
        for _ in sys.stdin:
            print(await say(b"", timeout=20, wait_for_ready=True), flush=True)

asyncio.run(main())
"""


class NameServer(asyncio.DatagramProtocol):
    """A name server that resolves every name to the same address."""

    address = "127.0.0.1"

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: Any) -> None:
        question = data[12 : data.index(0, 12) + 5]
        found = question[-4:-2] == b"\0\1"
        head = data[:2] + b"\x81\x80\0\1" + bytes([0, found]) + bytes(4)
        record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + bytes(map(int, self.address.split("."))) if found else b""
        self._transport.sendto(head + question + record, sender)


async def test_call_reaches_the_server_that_a_name_resolves_to_now() -> None:
    """Runs in a process of its own, since gRPC asks a given name server only with its built-in resolver."""
    port = free_port()
    transport, name_server = await asyncio.get_running_loop().create_datagram_endpoint(NameServer, ("127.0.0.1", 0))
    target = f"dns://127.0.0.1:{transport.get_extra_info('sockname')[1]}/server.example:{port}"
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, target, f"/{NAME}/UnaryUnary"),
        env={**os.environ, "GRPC_DNS_RESOLVER": "ares"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        for name_server.address in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            server = Server([EchoService()], host=name_server.address, port=port)
            await server.start()
            program.stdin.write(b"\n")
            assert await program.stdout.readline() == b"b''\n"
            await server.stop(drain_s=0)
    finally:
        program.stdin.close()
        await program.wait()
        transport.close()
