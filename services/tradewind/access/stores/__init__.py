"""Where users and sessions are kept."""
