"""What flows, cycles and their structure are: pure values and decisions, no clock, store or wire."""
