"""What passes over memory that numba compiles are made with."""
