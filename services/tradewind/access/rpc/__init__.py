"""The access service's gRPC face."""
