"""Runner of the benchmark: plans and runs cells, stores records, analyses them and writes pages."""
