"""What the access service does: sessions, users, quotas, and who a call comes from."""
