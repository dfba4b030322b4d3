"""The stores of users and sessions."""
