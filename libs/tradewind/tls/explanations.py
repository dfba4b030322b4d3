"""Explains to people why a connection failed, where the words of gRPC and of its TLS would not help."""

_CAUSES = (
    ("certificate has expired", "its TLS certificate has expired: whoever runs the server has to replace it"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its TLS certificate is not signed by a CA that is trusted here: set TRADEWIND_TLS_CA (--tls-ca) to the "
        "file of the CA that signed it",
    ),
    (
        "Hostname Verification Check failed",
        "its TLS certificate is for other names: use one of them as the address, or set the name to expect with "
        "TRADEWIND_TLS_SERVER_NAME (--tls-server-name)",
    ),
    ("WRONG_VERSION_NUMBER", "it speaks plain text, not TLS: unset the TRADEWIND_TLS_* variables"),
    (
        "Socket closed",
        "it closed the connection at once, as a server does that expects TLS, or a certificate signed by its CA: "
        "see TRADEWIND_TLS_CA, TRADEWIND_TLS_CERT and TRADEWIND_TLS_KEY",
    ),
    (
        "before receiving SETTINGS frame",
        "it takes connections but does not answer: it hangs or is very busy, or it is another program",
    ),
)
_CONNECTING = ("connections to all backends failing", "failed to connect to all addresses")


def connection_explanation(details: str) -> str | None:
    """Return what the text of a gRPC status means; None when it is no failed connection, or says so itself."""
    if not details.startswith(_CONNECTING):
        return None
    return next((explanation for marker, explanation in _CAUSES if marker in details), None)
