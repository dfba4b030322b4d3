"""Who calls, and what they may do: one gate around every server's calls. Without a gate nothing is checked."""
