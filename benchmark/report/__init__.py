"""Rendering: leaderboards, pages, exports and the site. Computes no statistics."""
