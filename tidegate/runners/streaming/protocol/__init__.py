"""The messages between coordinator, workers and clients, and the items that travel in channels. Data only."""
