"""Studies for maintainers: timings beside other libraries, and the authors' code.

`clients`, `handover` and the workers run in environments of their own and import nothing that those lack.
"""
