"""The steps of which queries are made: projections, groups, joins, windows, orders and the author's functions."""
