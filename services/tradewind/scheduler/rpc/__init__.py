"""The gRPC face of the scheduler."""
