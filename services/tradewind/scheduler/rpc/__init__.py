"""The gRPC interface of the scheduler."""
