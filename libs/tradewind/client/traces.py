"""The trace that the caller is in."""

import sys


def traceparent() -> str:
    """Return the W3C `traceparent` that continues the caller's trace in the server; "" if there is none."""
    # A program that traces has imported OpenTelemetry; for others, the import would be most of their start-up time.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    span = trace.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else ""
