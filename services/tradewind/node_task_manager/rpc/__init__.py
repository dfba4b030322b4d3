"""The gRPC side of the node task manager."""
