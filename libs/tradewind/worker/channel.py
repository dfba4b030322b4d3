"""Channels to Tradewind's servers, and sentences for their errors."""

import re

import grpc
from google.rpc import error_details_pb2

from tradewind.grpc_engine import CONNECT_WITHIN_MS
from tradewind.server.statuses import status_in
from tradewind.tls import Security, connection_explanation
from tradewind.tls.channels import open_channel as open_secured

_OPTIONS = (
    # An assignment may hold 3 MiB of inputs besides its config; servers keep their messages below 4 MiB.
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.min_reconnect_backoff_ms", CONNECT_WITHIN_MS),
)

_REFUSED = re.compile(r"(?:ipv[46]:|(?=unix:))(\S+): Failed to connect to remote host: .*Connection refused")


def open_channel(address: str, security: Security = None) -> grpc.aio.Channel:
    """Return a channel to `host:port`: plain text without `security`, else TLS. Raises TlsError, ValueError."""
    return open_secured(address, security, _OPTIONS)


def explain(error: grpc.aio.AioRpcError) -> str:
    """Return, for a person, why a call failed, with every violation that the server listed."""
    details = error.details() or "no details"
    parts: list[str] = []
    for detail in status_in(error).details:
        request = error_details_pb2.BadRequest()
        if detail.Unpack(request):
            parts.extend(f"{each.field}: {each.description}" for each in request.field_violations)
    # When nobody answers, neither gRPC's message nor the code would help.
    if not parts and error.code() is grpc.StatusCode.UNAVAILABLE and (refused := _REFUSED.search(details)):
        return f'nobody answers at {refused[1]}: is "tradewind up" running?'
    # If violations are listed, the details only repeat the first of them.
    return f"{error.code().name}: " + ("; ".join(parts) or connection_explanation(details) or details)
