"""Studies for maintainers: timings beside other libraries, and the authors' code.

`clients`, `handover` and the workers run in separate environments and import only packages found there.
"""
