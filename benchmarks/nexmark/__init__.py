"""Nexmark: an auction's persons, auctions and bids as bounded tables or streams, and its queries in SQL."""
