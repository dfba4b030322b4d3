"""What the access service does: sessions, users, quotas, and telling gates who calls."""
