"""What a trigger is, when it fires next, who holds it and what happens when it is refused; no I/O."""
