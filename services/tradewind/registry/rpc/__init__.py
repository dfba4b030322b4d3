"""The gRPC side of the registry."""
