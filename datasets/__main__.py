"""Entry point of `python -m datasets`."""

import sys

from fedsub.datasets.cli import main

sys.exit(main())
