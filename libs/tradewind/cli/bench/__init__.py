"""The benchmark that comes with the product: no-op flows run against a running stack, measured at the client."""
