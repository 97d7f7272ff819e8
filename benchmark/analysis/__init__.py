"""Judging records: scores, agreement with print, paired contrasts. Renders nothing but plots."""
