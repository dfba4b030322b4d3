"""The gRPC side of the trigger service."""
