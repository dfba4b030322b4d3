"""What every Tradewind server shares: bootstrap, errors, settings, telemetry and the way to Redis."""
