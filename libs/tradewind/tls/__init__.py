"""TLS for servers and clients: certificates from PEM files that can be replaced at any time."""

import tradewind.grpc_engine  # noqa: F401 - before grpc
from tradewind.tls.channels import Security, security_of
from tradewind.tls.explanations import connection_explanation
from tradewind.tls.files import SYSTEM, StoreTlsFiles, TlsError, TlsFiles
from tradewind.tls.servers import server_credentials

__all__ = [
    "SYSTEM",
    "Security",
    "StoreTlsFiles",
    "TlsError",
    "TlsFiles",
    "connection_explanation",
    "security_of",
    "server_credentials",
]
