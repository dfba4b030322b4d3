"""What every Tradewind server shares: bootstrap, errors, settings, telemetry and access to Redis."""
