"""Run the whole stack: `python -m tradewind.standalone`."""

import sys

import tradewind.server.first_process  # noqa: F401 - before what takes long to import
from tradewind.server.settings import print_settings
from tradewind.standalone.process import run
from tradewind.standalone.settings import StandaloneSettings
from tradewind.standalone.stack import Standalone

if __name__ == "__main__":
    if sys.argv[1:] == ["--help-settings"]:
        print_settings(StandaloneSettings)
        sys.exit(0)
    if sys.argv[1:]:
        sys.exit(f"unknown argument {sys.argv[1]}: settings come from the environment, see --help-settings")
    sys.exit(run(Standalone))
