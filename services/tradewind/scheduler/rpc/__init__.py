"""The gRPC side of the scheduler."""
