"""Server credentials that use new certificates for new connections."""

from typing import Any

import grpc

from tradewind.tls.files import SYSTEM, Pem, TlsError, TlsFiles, WatchedFiles


def server_credentials(files: TlsFiles, *, require_client_cert: bool) -> grpc.ServerCredentials:
    """Return credentials that check the files at each handshake; open connections go on.

    With `require_client_cert`, callers must show a certificate that the CA has signed. Raises TlsError when the files
    are not good, or a needed one is not named.
    """
    if not files.cert:
        raise TlsError(
            "TLS: a server needs a certificate and its key: set TRADEWIND_TLS_CERT and TRADEWIND_TLS_KEY as well as "
            "TRADEWIND_TLS_CA"
        )
    if require_client_cert and (not files.ca or str(files.ca) == SYSTEM):
        raise TlsError("TLS: callers must show certificates, so TRADEWIND_TLS_CA must name the file of their CA")
    watched = WatchedFiles(files)
    known = watched.current()

    def configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
        assert pem.cert is not None
        assert pem.key is not None
        return grpc.ssl_server_certificate_configuration(
            [(pem.key, pem.cert)], root_certificates=pem.ca if require_client_cert else None
        )

    def replaced() -> Any:
        nonlocal known
        pem = watched.current()
        if pem is known:
            # The stubs do not allow None, which means no change.
            return None
        known = pem
        return configuration(pem)

    return grpc.dynamic_ssl_server_credentials(configuration(known), replaced, require_client_cert)
