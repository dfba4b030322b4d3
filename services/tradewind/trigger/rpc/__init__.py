"""The trigger service's gRPC face."""
