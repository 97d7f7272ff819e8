"""Parsers of upstream formats, a module each: `parse(files)` turns downloaded files into a `RawGraph`."""
