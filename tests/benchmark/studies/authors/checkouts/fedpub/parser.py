"""The command line of the played code: the options that the worker passes."""

import argparse


class Parser:
    def parse(self):
        parser = argparse.ArgumentParser()
        for name in ("n-workers", "n-clients", "n-rnds", "n-eps", "n-dims", "seed"):
            parser.add_argument(f"--{name}", type=int)
        for name in ("frac", "lr", "norm-scale", "l1", "loc-l2"):
            parser.add_argument(f"--{name}", type=float, default=1.0)
        for name in ("model", "dataset", "mode", "base-path"):
            parser.add_argument(f"--{name}")
        for name in ("laye-mask-one", "clsf-mask-one"):
            parser.add_argument(f"--{name}", action="store_true")
        return parser.parse_args()
