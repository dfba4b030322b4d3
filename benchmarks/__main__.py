"""`python -m benchmarks`: the driver."""

import sys

from benchmarks.run import main

sys.exit(main())
