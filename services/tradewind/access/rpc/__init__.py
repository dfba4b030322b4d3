"""The gRPC side of the access service."""
