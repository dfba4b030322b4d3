"""The gRPC face of the node task manager."""
