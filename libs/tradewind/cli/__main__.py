"""`python -m tradewind.cli` is `tradewind`."""

from tradewind.cli import main

if __name__ == "__main__":
    main()
