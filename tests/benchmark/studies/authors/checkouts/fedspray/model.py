# mypy: ignore-errors
"""Networks of the played code: which one is used shows in its scores."""


class GCN:
    share = 0.25


class SGC:
    share = 0.5


class SAGE:
    share = 1.0
